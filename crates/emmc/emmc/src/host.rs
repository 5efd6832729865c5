//! The host of a card: its bus, and the cost of each step of a command. Read from TOML files, which name their
//! sources.
//!
//! A write takes these steps (seeds/002 figure 4, and the drivers named in the presets): wait until the card is not
//! busy; CMD23 with the block count, and its interrupt; CMD25 or CMD18 with the data, and the interrupt at its end;
//! CMD13 until the card is ready again. A single block without CMD23 uses CMD24 or CMD17.

use media::Nanos;
use serde::{Deserialize, Serialize};

use crate::error::CardError;
use crate::presets::{Presets, from_toml};

/// A host as described in its file. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// Name.
    pub name: String,
    /// One-line description.
    pub description: String,
    /// Sources of the numbers, and which of them are assumptions.
    pub source: String,
    /// Bus mode.
    pub bus_mode: BusMode,
    /// Bus clock.
    pub clock_hz: u32,
    /// Data lines: 1, 4 or 8.
    pub width: u32,
    /// Time from the first bit of a command to the last of its response.
    pub command_ns: u32,
    /// Cost of one interrupt.
    pub interrupt_ns: u32,
    /// Wake-up time of the driver's thread.
    pub wake_ns: u32,
    /// Whether CMD23 completes by interrupt and wake-up; otherwise by polling.
    pub cmd23_interrupt: bool,
    /// Time to fetch one request from the scheduler.
    pub fetch_ns: u32,
    /// Time to prepare one request for DMA; overlaps the previous command.
    pub prepare_ns: u32,
    /// Time to complete one request.
    pub complete_ns: u32,
    /// Interval of polls (CMD13) of a card that is not ready.
    pub poll_ns: u32,
    /// Granularity of waiting for a busy card before a command; 0 for none.
    pub busy_step_ns: u32,
    /// Maximum sectors of a command.
    pub max_sectors: u32,
    /// Maximum segments of a command.
    pub max_segments: u32,
    /// Maximum size of a segment in bytes.
    pub segment_bytes: u32,
    /// Interrupts of a transfer without CMD23: response and data, or both in one.
    pub transfer_interrupts: u16,
    /// Slots of the command queue engine (CQE); 0 for none.
    #[serde(default)]
    pub queue_slots: u32,
    /// Whether the engine sends flushes as direct commands (DCMD) in slot 31.
    #[serde(default)]
    pub direct_commands: bool,
}

/// Bus mode: clock edges and maximum clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BusMode {
    /// One edge, up to 26 MHz.
    Legacy,
    /// One edge, up to 52 MHz.
    Hs52,
    /// Both edges, up to 52 MHz.
    Ddr52,
    /// One edge, up to 200 MHz.
    Hs200,
    /// Both edges, up to 200 MHz.
    Hs400,
}

impl BusMode {
    /// Maximum clock.
    #[must_use]
    pub const fn clock_hz_max(self) -> u32 {
        match self {
            Self::Legacy => 26_000_000,
            Self::Hs52 | Self::Ddr52 => 52_000_000,
            Self::Hs200 | Self::Hs400 => 200_000_000,
        }
    }

    /// Clock edges that carry data.
    #[must_use]
    pub const fn edges(self) -> u64 {
        match self {
            Self::Legacy | Self::Hs52 | Self::Hs200 => 1,
            Self::Ddr52 | Self::Hs400 => 2,
        }
    }
}

impl HostFile {
    /// Parses a description; `name` is for messages.
    ///
    /// # Errors
    /// If the text is not TOML with these keys, or a number is invalid.
    pub fn parse(name: &str, text: &str) -> Result<Self, CardError> {
        let host: Self = from_toml(name, text)?;
        host.check()?;
        Ok(host)
    }

    fn check(&self) -> Result<(), CardError> {
        let wrong = |what, found: u32, expected| CardError::Number {
            what,
            found: u64::from(found),
            expected,
        };
        if self.clock_hz == 0 || self.clock_hz > self.bus_mode.clock_hz_max() {
            return Err(wrong(
                "clock_hz",
                self.clock_hz,
                "at most what the mode allows: 26, 52 or 200 MHz",
            ));
        }
        if ![1, 4, 8].contains(&self.width) {
            return Err(wrong("width", self.width, "1, 4 or 8 lines"));
        }
        if self.max_sectors < 2 || self.max_segments < 2 {
            return Err(wrong(
                "max_sectors, max_segments",
                self.max_sectors.min(self.max_segments),
                "at least 2",
            ));
        }
        if self.queue_slots > 32 {
            return Err(wrong("queue_slots", self.queue_slots, "0 to 32"));
        }
        if self.poll_ns == 0 || self.segment_bytes == 0 {
            return Err(wrong("poll_ns, segment_bytes", 0, "more than 0"));
        }
        Ok(())
    }

    /// The preset with this name.
    ///
    /// # Errors
    /// If it does not exist; the message lists the existing names.
    pub fn preset(name: &str) -> Result<Self, CardError> {
        let (name, text) = PRESETS.find(name)?;
        Self::parse(name, text)
    }

    /// The file of the preset with this name.
    #[must_use]
    pub fn preset_text(name: &str) -> Option<&'static str> {
        PRESETS.find(name).ok().map(|(_, text)| text)
    }

    /// Names of the presets.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.names()
    }

    /// Transfer time of a sector over the data lines, picoseconds.
    #[must_use]
    pub fn sector_ps(&self) -> u64 {
        let bits_a_clock = u64::from(self.width) * self.bus_mode.edges();
        (512 * 8 * 1_000_000_000_000) / (bits_a_clock * u64::from(self.clock_hz))
    }

    /// Number of segments of a request of `bytes` bytes.
    #[must_use]
    pub fn segments(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(self.segment_bytes))).unwrap_or(u32::MAX)
    }

    /// Duration of CMD23 including its wait.
    #[must_use]
    pub fn cmd23(&self) -> Nanos {
        let wait = if self.cmd23_interrupt {
            u64::from(self.interrupt_ns) + u64::from(self.wake_ns)
        } else {
            0
        };
        Nanos(u64::from(self.command_ns) + wait)
    }

    /// Time at which a command can be sent at the earliest, if the card is busy until `ready`.
    #[must_use]
    pub fn not_busy(&self, now: Nanos, ready: Nanos) -> Nanos {
        let wait = ready.saturating_sub(now).0;
        match u64::from(self.busy_step_ns) {
            0 => now.max(ready),
            step => Nanos(now.0 + wait.div_ceil(step) * step),
        }
    }

    /// Time at which the driver sees that the card is ready, if the data ends at `data_end` and the card is busy
    /// until `ready`.
    #[must_use]
    pub fn seen_ready(&self, data_end: Nanos, ready: Nanos) -> Nanos {
        let interrupted = data_end.0 + u64::from(self.interrupt_ns) + u64::from(self.wake_ns);
        let poll = u64::from(self.poll_ns);
        let polls = ready.0.saturating_sub(interrupted).div_ceil(poll);
        Nanos(interrupted + polls * poll + u64::from(self.command_ns))
    }

    /// Interrupts of one command with data, with or without CMD23. CMD13 takes one more.
    #[must_use]
    pub const fn interrupts(&self, with_cmd23: bool) -> u16 {
        let of_cmd23 = if with_cmd23 && self.cmd23_interrupt { 1 } else { 0 };
        of_cmd23 + self.transfer_interrupts + 1
    }
}

const PRESETS: Presets = Presets {
    what: "host",
    texts: &[
        ("mshci", include_str!("../hosts/mshci.toml")),
        ("sdhci-hs200", include_str!("../hosts/sdhci-hs200.toml")),
        ("cqhci-hs400", include_str!("../hosts/cqhci-hs400.toml")),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 MHz x 8 lines x 2 edges = 640 Mbit/s: 512 B are 6.4 us.
    #[test]
    fn the_phones_bus_moves_a_sector_in_6_4_us() {
        assert_eq!(HostFile::preset("mshci").unwrap().sector_ps(), 6_400_000);
    }

    /// 200 MHz x 8 lines: 2.56 us; both edges: 1.28 us.
    #[test]
    fn hs400_is_twice_hs200() {
        assert_eq!(HostFile::preset("sdhci-hs200").unwrap().sector_ps(), 2_560_000);
        assert_eq!(HostFile::preset("cqhci-hs400").unwrap().sector_ps(), 1_280_000);
    }

    /// Busy for 120 us in steps of 50: the third step, 150.
    #[test]
    fn a_busy_card_is_waited_for_in_steps() {
        let host = HostFile::preset("mshci").unwrap();
        let now = Nanos::from_micros(1000);
        assert_eq!(
            host.not_busy(now, Nanos::from_micros(1120)),
            Nanos::from_micros(1150)
        );
        assert_eq!(host.not_busy(now, Nanos::from_micros(900)), now);
    }

    /// Data ends at 1000 us; interrupt 10 + wake-up 30 = 1040. Busy until 1100 with a poll every 20: three, 1100; the
    /// last one's command takes 5: 1105.
    #[test]
    fn readiness_is_seen_at_the_next_poll() {
        let host = HostFile {
            interrupt_ns: 10_000,
            wake_ns: 30_000,
            poll_ns: 20_000,
            command_ns: 5_000,
            ..HostFile::preset("mshci").unwrap()
        };
        let seen = host.seen_ready(Nanos::from_micros(1000), Nanos::from_micros(1100));
        assert_eq!(seen, Nanos::from_micros(1105));
    }

    /// CMD23, response, end of data, CMD13: four on the phone, three without CMD23; sdhci takes two.
    #[test]
    fn interrupts_are_counted_as_the_drivers_take_them() {
        let phone = HostFile::preset("mshci").unwrap();
        assert_eq!((phone.interrupts(true), phone.interrupts(false)), (4, 3));
        assert_eq!(HostFile::preset("sdhci-hs200").unwrap().interrupts(true), 2);
    }

    #[test]
    fn a_clock_beyond_the_mode_is_refused() {
        let text = include_str!("../hosts/mshci.toml").replace("clock_hz = 40000000", "clock_hz = 80000000");
        let message = HostFile::parse("mine", &text).unwrap_err().to_string();
        assert!(message.contains("clock_hz"), "{message}");
    }
}
