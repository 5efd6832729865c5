//! The BPF programs: embedded, adapted to the running kernel, loaded and attached; and their counters.
//!
//! A program whose tracepoint the kernel lacks is left out and recorded as a limitation. If the kernel refuses the
//! whole set, a second attempt loads only the programs needed for requests, and records the rest and the reason as a
//! limitation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject};

use results::block_trace::Limitation;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::calls;
use super::device::Driver;
use super::error::CaptureError;
use super::own_pid;
use super::record::{CallKey, Configuration, Counters};
use super::request_flags::FlagBits;
use super::setup::Setup;
use super::types::{FOLDER, KernelTypes};

pub(crate) use super::ring::read as read_ring;
pub(crate) use libbpf_rs::MapHandle as RingHandle;

/// Built by `scripts/build-bpf.sh`.
const OBJECT: &[u8] = include_bytes!("../../bpf/tidegate.bpf.o");
const SECTION: &str = "tp_btf/";
/// Number of btrfs' bit for data that waits in kernels that do not tell it, and the first one that does.
const WAITING_BIT: u32 = 4;
const TELLS_WAITING_BIT: (u32, u32) = (6, 5);

/// Tracepoints of the drivers: of cards, and of the SCSI layer.
const CARD_COMMANDS: [&str; 2] = ["mmc_request_start", "mmc_request_done"];
const SCSI_COMMANDS: [&str; 2] = ["scsi_dispatch_cmd_start", "scsi_dispatch_cmd_done"];
const INTERRUPT: &str = "irq_handler_entry";

/// Without these there are no requests.
const ESSENTIAL: [&str; 6] = [
    "block_bio_queue",
    "block_bio_complete",
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_requeue",
    "block_rq_complete",
];

/// Tracepoints that only some kernels or drivers have, and the consequence of their absence. A tracepoint not listed
/// has none: another one replaces it, or its subsystem is absent.
const MISSED: [(&str, &str); 6] = [
    ("block_bio_queue", "files, processes and queue times of requests"),
    ("block_rq_issue", "issue times of requests"),
    ("block_rq_complete", "completions of requests"),
    (
        "block_bio_complete",
        "completions on devices without requests (dm, md)",
    ),
    (
        "block_rq_requeue",
        "requests that were taken back and issued again",
    ),
    ("sys_enter", "counts of system calls"),
];

impl Setup {
    /// Whether a tracepoint is needed.
    fn needs(&self, tracepoint: &str) -> bool {
        let drivers = |has: fn(&Driver) -> bool| self.drivers.iter().any(has);
        match tracepoint {
            "sys_enter" => self.count_calls,
            INTERRUPT => drivers(|driver| driver.interrupt.is_some()),
            _ if CARD_COMMANDS.contains(&tracepoint) => drivers(|driver| driver.mmc_host.is_some()),
            _ if SCSI_COMMANDS.contains(&tracepoint) => drivers(|driver| driver.is_scsi),
            _ => true,
        }
    }

    /// Limitations for the drivers' commands with these tracepoints.
    fn driver_limitations(&self, tracepoints: &BTreeSet<String>) -> Vec<Limitation> {
        let mut limitations = Vec::new();
        for commands in [CARD_COMMANDS, SCSI_COMMANDS] {
            let is_needed = commands.iter().all(|one| self.needs(one));
            if is_needed && !commands.iter().all(|one| tracepoints.contains(*one)) {
                limitations.push(Limitation {
                    what: "commands of the driver".to_owned(),
                    why: format!("this kernel has no tracepoints {}", commands.join(" and ")),
                });
            }
        }
        if self
            .drivers
            .iter()
            .any(|driver| driver.mmc_host.is_some() && driver.interrupt.is_none())
        {
            limitations.push(Limitation {
                what: "interrupts of the card's host".to_owned(),
                why: "no line of /proc/interrupts bears its name".to_owned(),
            });
        }
        limitations
    }
}

/// The attached programs.
pub(crate) struct Programs {
    object: Object,
    links: Vec<Link>,
    /// Limitations due to programs that could not be attached.
    pub limitations: Vec<Limitation>,
    /// Decoder of request flags.
    pub flags: FlagBits,
}

impl Programs {
    /// Loads and attaches the programs.
    pub(crate) fn attach(setup: &Setup) -> Result<Self, CaptureError> {
        let vmlinux = Btf::from_path(format!("{FOLDER}/vmlinux")).map_err(|error| CaptureError::Forbidden {
            reason: format!(
                "the kernel tells nothing of its types ({FOLDER}/vmlinux: {error}); it needs CONFIG_DEBUG_INFO_BTF"
            ),
        })?;
        let types = KernelTypes::read().map_err(|source| CaptureError::Refused {
            step: format!("reading {FOLDER}"),
            source,
        })?;
        let tracepoints = &types.tracepoints;
        let mut limitations = Vec::new();
        let flags = flag_bits(&vmlinux);
        let symbols = symbols();
        if symbols.is_empty() {
            limitations.push(Limitation {
                what: "direct I/O, journal and file systems' own requests are not told apart".to_owned(),
                why: "/proc/kallsyms shows no addresses (kernel.kptr_restrict)".to_owned(),
            });
        }
        let mut configuration = configuration(setup, &symbols);
        configuration.btrfs_waits = match types.btrfs_waiting_bit {
            Some(bit) => 1 << bit,
            None if super::privilege::is_since(TELLS_WAITING_BIT) => 0,
            None => 1 << WAITING_BIT,
        };
        if configuration.btrfs_waits == 0 && tracepoints.contains("btrfs_set_extent_bit") {
            limitations.push(Limitation {
                what: "on btrfs, write calls to pages that are dirty already".to_owned(),
                why: format!("{FOLDER} has no member __EXTENT_DELALLOC_BIT"),
            });
        }
        let wanted = |tracepoint: &str| tracepoints.contains(tracepoint) && setup.needs(tracepoint);
        let object = match load(OBJECT, setup, &configuration, &wanted) {
            Ok(object) => object,
            Err(NotLoaded::Other(error)) if is_forbidden(&error) => return Err(forbidden(&error)),
            Err(first) => {
                let essential = |tracepoint: &str| wanted(tracepoint) && ESSENTIAL.contains(&tracepoint);
                let object =
                    load(OBJECT, setup, &configuration, &essential).map_err(NotLoaded::into_capture_error)?;
                limitations.push(Limitation {
                    what: "processes behind buffered writes, the life of files, the journal's transactions"
                        .to_owned(),
                    why: format!("the kernel refused these programs: {first}"),
                });
                object
            }
        };
        for (tracepoint, what) in MISSED {
            if !tracepoints.contains(tracepoint) {
                limitations.push(Limitation {
                    what: what.to_owned(),
                    why: format!("this kernel has no tracepoint {tracepoint}"),
                });
            }
        }
        limitations.extend(setup.driver_limitations(tracepoints));
        let mut programs = Self {
            object,
            links: Vec::new(),
            limitations,
            flags,
        };
        for number in &setup.file_systems {
            let map = programs.map("file_systems")?;
            map.update(&u64::from(*number).to_ne_bytes(), &[1], MapFlags::ANY)
                .map_err(|error| refused("naming the mounted file systems", &error))?;
        }
        programs.attach_all()?;
        Ok(programs)
    }

    fn attach_all(&mut self) -> Result<(), CaptureError> {
        // Completions come before what they complete: else all that is issued in between would never seem to end.
        let mut programs: Vec<_> = self
            .object
            .progs_mut()
            .filter(|program| program.autoload())
            .collect();
        programs.reverse();
        for program in programs {
            let section = program.section().to_string_lossy().into_owned();
            match program.attach() {
                Ok(link) => self.links.push(link),
                Err(error) => {
                    let tracepoint = section.trim_start_matches(SECTION);
                    if ESSENTIAL.contains(&tracepoint) {
                        return Err(refused(
                            &format!("attaching to the tracepoint {tracepoint}"),
                            &error,
                        ));
                    }
                    self.limitations.push(Limitation {
                        what: format!("what the tracepoint {tracepoint} tells"),
                        why: error.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Detaches the programs: no more records after this.
    pub(crate) fn detach(&mut self) {
        self.links.clear();
    }

    /// A handle of the ring for another thread.
    pub(crate) fn ring(&self) -> Result<RingHandle, CaptureError> {
        let map = self.map("ring")?;
        RingHandle::try_from(&map).map_err(|error| refused("opening the ring", &error))
    }

    /// The programs' counters.
    pub(crate) fn counters(&self) -> Result<Counters, CaptureError> {
        let map = self.map(".bss")?;
        let value = map
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| refused("reading the counters", &error))?;
        let read = value.and_then(|bytes| {
            Counters::read_from_prefix(&bytes)
                .ok()
                .map(|(counters, _)| counters)
        });
        Ok(read.unwrap_or_else(Counters::new_zeroed))
    }

    /// Makes the programs send names of files and processes again, of which user space has dropped some.
    pub(crate) fn send_names_again(&self) -> Result<(), CaptureError> {
        for name in ["names_sent", "processes_sent"] {
            let map = self.map(name)?;
            for key in map.keys() {
                // It may be gone: the kernel drops the oldest ones itself.
                let _ = map.delete(&key);
            }
        }
        Ok(())
    }

    /// Calls per process: its key in the names, name of the call, number of calls.
    pub(crate) fn calls(&self) -> Result<Vec<(CallKey, &'static str, u64)>, CaptureError> {
        let map = self.map("calls")?;
        let mut counted = Vec::new();
        for key in map.keys() {
            let (Ok(parsed), Ok(Some(value))) =
                (CallKey::read_from_bytes(&key), map.lookup(&key, MapFlags::ANY))
            else {
                continue;
            };
            let count = value.try_into().map(u64::from_ne_bytes).unwrap_or(0);
            if let Some(name) = calls::name(parsed.call) {
                counted.push((parsed, name, count));
            }
        }
        Ok(counted)
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, CaptureError> {
        let found = self.object.maps().find(|map| {
            let own = map.name().to_string_lossy();
            own == name || (name.starts_with('.') && own.ends_with(name))
        });
        found.ok_or_else(|| CaptureError::Refused {
            step: format!("finding the map {name}"),
            source: io::Error::from(io::ErrorKind::NotFound),
        })
    }
}

/// Reason why the programs are not loaded.
#[derive(Debug)]
enum NotLoaded {
    /// The verifier's own words.
    Verifier(String),
    Other(libbpf_rs::Error),
}

impl std::fmt::Display for NotLoaded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Verifier(reason) => write!(formatter, "the verifier says of {reason}"),
            Self::Other(error) => error.fmt(formatter),
        }
    }
}

impl NotLoaded {
    fn into_capture_error(self) -> CaptureError {
        match self {
            Self::Verifier(reason) => match super::privilege::too_old() {
                None => CaptureError::Verifier { reason },
                Some(reason) => CaptureError::Forbidden { reason },
            },
            Self::Other(error) => refused("loading the BPF programs", &error),
        }
    }
}

fn load(
    object: &[u8],
    setup: &Setup,
    configuration: &Configuration,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Object, NotLoaded> {
    super::verifier::listen();
    let loaded = open_and_load(object, setup, configuration, wanted);
    let said = super::verifier::reason();
    loaded.map_err(|error| said.map_or(NotLoaded::Other(error), NotLoaded::Verifier))
}

fn open_and_load(
    object: &[u8],
    setup: &Setup,
    configuration: &Configuration,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Object, libbpf_rs::Error> {
    let mut builder = ObjectBuilder::default();
    let mut open: OpenObject = builder.open_memory(object)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "ring" {
            map.set_max_entries(setup.ring_bytes)?;
        } else if name.ends_with(".rodata.config") {
            map.set_initial_value(configuration.as_bytes())?;
        }
    }
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        program.set_autoload(section.strip_prefix(SECTION).is_some_and(wanted));
    }
    open.load()
}

fn configuration(setup: &Setup, symbols: &BTreeMap<String, u64>) -> Configuration {
    let address = |names: &[&str]| {
        let found = names.iter().find_map(|name| symbols.get(*name));
        found.copied().unwrap_or(0)
    };
    let mut configuration = Configuration::new_zeroed();
    for (slot, device) in configuration.devices.iter_mut().zip(&setup.devices) {
        *slot = *device;
    }
    for (slot, driver) in configuration.mmc_hosts.iter_mut().zip(&setup.drivers) {
        *slot = driver.mmc_host.map_or(0, |host| host + 1);
    }
    for (slot, driver) in configuration.interrupts.iter_mut().zip(&setup.drivers) {
        *slot = driver.interrupt.map_or(0, |interrupt| interrupt + 1);
    }
    configuration.device_count = u32::try_from(setup.devices.len()).unwrap_or(u32::MAX);
    configuration.own_tgid = own_pid();
    configuration.ring_bytes = u64::from(setup.ring_bytes);
    configuration.iomap_direct = address(&["iomap_dio_bio_end_io"]);
    configuration.legacy_direct = address(&["dio_bio_end_io"]);
    configuration.legacy_direct_async = address(&["dio_bio_end_aio"]);
    configuration.buffer_head = address(&["end_bio_bh_io_sync"]);
    configuration.journal_buffer = address(&["journal_end_buffer_io_sync"]);
    configuration.fast_commit_buffer = address(&["ext4_end_buffer_io_sync"]);
    configuration.xfs_buffer = address(&["xfs_buf_bio_end_io"]);
    configuration.xfs_log = address(&["xlog_bio_end_io"]);
    configuration.btrfs_simple = address(&["btrfs_simple_end_io"]);
    configuration.btrfs_original = address(&["btrfs_orig_write_end_io"]);
    configuration.btrfs_super = address(&["btrfs_end_super_write"]);
    configuration.raw_direct = address(&["blkdev_bio_end_io"]);
    configuration.raw_direct_async = address(&["blkdev_bio_end_io_async"]);
    configuration.waited_for = address(&["submit_bio_wait_endio"]);
    configuration.waited_for_too = address(&["bio_wait_end_io"]);
    configuration.chained = address(&["bio_chain_endio"]);
    for (number, _) in calls::COUNTED {
        let slot = usize::try_from(*number).ok();
        if let Some(slot) = slot.and_then(|at| configuration.counted_calls.get_mut(at)) {
            *slot = 1;
        }
    }
    for (number, arguments) in calls::DESCRIPTORS {
        let slot = usize::try_from(*number).ok();
        if let Some(slot) = slot.and_then(|at| configuration.descriptors.get_mut(at)) {
            *slot = *arguments;
        }
    }
    configuration
}

/// Addresses of functions; empty if the kernel hides them. A compiler may have appended `.isra.0` or similar.
fn symbols() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        let name = fields.nth(1)?;
        // Only symbols of functions that end a bio or a buffer are needed.
        if address == 0 || !name.contains("end_") {
            return None;
        }
        let name = name.split('.').next()?;
        Some((name.to_owned(), address))
    };
    text.lines().filter_map(parse).collect()
}

fn flag_bits(vmlinux: &Btf<'_>) -> FlagBits {
    let Some(members) = vmlinux.type_by_name::<Enum<'_>>("req_flag_bits") else {
        return FlagBits::from_members(std::iter::empty());
    };
    let named: Vec<(String, u32)> = members
        .iter()
        .filter_map(|member| {
            let name = member.name?.to_str()?.to_owned();
            Some((name, u32::try_from(member.value).ok()?))
        })
        .collect();
    FlagBits::from_members(named.iter().map(|(name, bit)| (name.as_str(), *bit)))
}

fn is_forbidden(error: &libbpf_rs::Error) -> bool {
    error.kind() == libbpf_rs::ErrorKind::PermissionDenied
}

fn refused(step: &str, error: &libbpf_rs::Error) -> CaptureError {
    if is_forbidden(error) {
        return forbidden(error);
    }
    CaptureError::Refused {
        step: step.to_owned(),
        source: io::Error::other(error.to_string()),
    }
}

/// Error with the missing privilege, or the kernel state that forbids tracing.
fn forbidden(error: &libbpf_rs::Error) -> CaptureError {
    let reason = match super::privilege::why_no_bpf() {
        Some(reason) => reason,
        None => format!("the kernel forbids the BPF programs: {error}"),
    };
    CaptureError::Forbidden { reason }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// The object is built manually and checked in: this test detects a changed source without a new object.
    #[test]
    fn the_object_was_built_from_these_sources() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
        let sum = Command::new("sh")
            .args([
                "-c",
                "LC_ALL=C; export LC_ALL; cat tidegate.bpf.c ./*.h | sha256sum",
            ])
            .current_dir(&folder)
            .output()
            .unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap();
        let built = fs::read_to_string(folder.join("tidegate.bpf.sources")).unwrap();
        assert_eq!(
            sum.split_whitespace().next(),
            Some(built.trim()),
            "run scripts/build-bpf.sh"
        );
    }

    #[test]
    fn a_refusal_by_the_verifier_is_told_as_such_and_not_as_a_missing_privilege() {
        if !testkit::needs(&[
            testkit::Need::Root,
            testkit::Need::Path("/sys/kernel/btf/vmlinux"),
        ]) || super::super::privilege::why_no_bpf().is_some()
        {
            return;
        }
        // `w0 = 0; exit` becomes `r0 = *(u64 *)(r10 + 8); exit`, outside the stack: the error is EACCES, that of a missing
        // privilege, too.
        const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
        let zero = [[0xB4, 0, 0, 0, 0, 0, 0, 0], EXIT].concat();
        let outside = [[0x79, 0xA0, 8, 0, 0, 0, 0, 0], EXIT].concat();
        let mut object = OBJECT.to_vec();
        for at in (0..object.len() - zero.len()).step_by(8) {
            if object[at..].starts_with(&zero) {
                object[at..at + outside.len()].copy_from_slice(&outside);
            }
        }
        let setup = Setup {
            devices: Vec::new(),
            file_systems: Vec::new(),
            drivers: Vec::new(),
            ring_bytes: 1 << 16,
            count_calls: false,
        };
        let configuration = configuration(&setup, &BTreeMap::new());
        let essential = |tracepoint: &str| ESSENTIAL.contains(&tracepoint);
        assert!(load(OBJECT, &setup, &configuration, &essential).is_ok());
        let Err(error) = load(&object, &setup, &configuration, &essential) else {
            panic!("the kernel took a program that reads outside its stack")
        };
        let error = error.into_capture_error();
        assert!(matches!(error, CaptureError::Verifier { .. }), "{error}");
        assert!(error.to_string().contains("invalid"), "{error}");
    }

    #[test]
    fn every_device_has_places_of_its_own_for_requests() {
        use crate::block::record::MAX_DEVICES;

        let source = include_str!("../../bpf/block.h");
        let value = |name: &str| {
            let line = source
                .lines()
                .find_map(|line| line.strip_prefix(&format!("#define {name} ")));
            line.and_then(|value| value.parse::<usize>().ok()).unwrap()
        };
        assert!(value("SLOTS_PER_DEVICE") * MAX_DEVICES <= value("SLOTS"));
    }

    #[test]
    fn every_program_sits_on_a_tracepoint_with_types() {
        let mut builder = ObjectBuilder::default();
        let open = builder.open_memory(OBJECT).unwrap();
        let sections: Vec<String> = open
            .progs()
            .map(|program| program.section().to_string_lossy().into_owned())
            .collect();
        assert!(sections.len() > 20, "{sections:?}");
        for section in &sections {
            assert!(section.starts_with(SECTION), "{section}");
        }
        for essential in ESSENTIAL {
            assert!(sections.contains(&format!("{SECTION}{essential}")), "{essential}");
        }
    }
}
