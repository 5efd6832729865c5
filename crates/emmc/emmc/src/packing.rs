//! Packing: which requests the driver gathers into one command, and why it stops.
//!
//! The order of the checks is that of real drivers:
//! - *samsung* (3.0, Galaxy S3): flush or discard, not contiguous (with sequential packing), direction, reliable
//!   write, sectors, segments. So a read that does not start at the end counts as RAND, and if the card may pack
//!   reliable writes, REL never occurs.
//! - *mainline* (3.9 to 4.9): the same without the check of contiguity.
//! - *msm* (3.10): FUA before the direction, and contiguity last.
//!
//! The header counts as a sector and a segment towards the limits, so 7 requests of 512 KiB fit 4 MiB, not 8. A
//! request that stops a pack is requeued at the head.

use results::block_trace::{Operation, RequestFlags};

use crate::block::{Request, RequestId, RequestQueue};
use crate::host::HostFile;
use media::Nanos;

/// Reason why gathering stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// The scheduler returned no request (it may hold some back).
    NoRequest,
    /// The next request does not start where the last one ends.
    Random,
    /// The next request is a flush or a discard.
    Sync,
    /// The next request is a reliable write, which the card does not pack.
    Reliable,
    /// The next request has the other direction.
    Read,
    /// The next request is FUA (only msm).
    Fua,
    /// The maximum number of requests is reached.
    FullCount,
    /// The next request exceeds the sectors of a command.
    FullSectors,
    /// The next request exceeds the segments of a command.
    FullSegments,
}

impl Stop {
    /// All reasons with their names in the paper, or in the driver if the paper has none.
    pub const WORDS: [(Self, &'static str); 9] = [
        (Self::NoRequest, "NOREQ"),
        (Self::Random, "RAND"),
        (Self::Sync, "SYNC"),
        (Self::Reliable, "REL"),
        (Self::Read, "READ"),
        (Self::Fua, "FUA"),
        (Self::FullCount, "full (count)"),
        (Self::FullSectors, "full (sectors)"),
        (Self::FullSegments, "full (segments)"),
    ];

    /// Index in [`Stop::WORDS`].
    #[must_use]
    pub fn place(self) -> usize {
        Self::WORDS
            .iter()
            .position(|(stop, _)| *stop == self)
            .expect("the table holds all of them")
    }

    /// Its name for counters: `noreq`, `full_count`.
    #[must_use]
    pub fn counter_name(self) -> String {
        let (_, word) = Self::WORDS[self.place()];
        let letters = word
            .chars()
            .filter(|letter| letter.is_ascii_alphabetic() || *letter == ' ');
        letters
            .map(|letter| match letter {
                ' ' => '_',
                letter => letter.to_ascii_lowercase(),
            })
            .collect()
    }

    /// Whether the pack had the maximum size.
    #[must_use]
    pub const fn is_full(self) -> bool {
        matches!(self, Self::FullCount | Self::FullSectors | Self::FullSegments)
    }
}

/// Order of a driver's checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOrder {
    /// Galaxy S3.
    Samsung,
    /// Linux 3.9 to 4.9.
    Mainline,
    /// Qualcomm 3.10.
    Msm,
}

impl StopOrder {
    /// All orders with their names.
    pub const WORDS: [(Self, &'static str); 3] = [
        (Self::Samsung, "samsung"),
        (Self::Mainline, "mainline"),
        (Self::Msm, "msm"),
    ];

    const fn tests(self) -> &'static [Stop] {
        match self {
            Self::Samsung => &[
                Stop::Sync,
                Stop::Random,
                Stop::Read,
                Stop::Reliable,
                Stop::FullSectors,
                Stop::FullSegments,
            ],
            Self::Mainline => &[
                Stop::Sync,
                Stop::Read,
                Stop::Reliable,
                Stop::FullSectors,
                Stop::FullSegments,
            ],
            Self::Msm => &[
                Stop::Sync,
                Stop::Fua,
                Stop::Read,
                Stop::Reliable,
                Stop::FullSectors,
                Stop::FullSegments,
                Stop::Random,
            ],
        }
    }
}

/// Which requests may be packed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contiguity {
    /// Only contiguous requests (the default of the phone).
    Needed,
    /// Any requests.
    Free,
}

/// Whether reads are packed too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackReads {
    /// Reads are not packed, as in all real drivers.
    No,
    /// Reads are packed.
    Yes,
}

/// Rules for gathering packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackRules {
    /// Order of the checks.
    pub order: StopOrder,
    /// Maximum number of requests per pack; 1 for no packing.
    pub max_requests: u32,
    /// Whether requests have to be contiguous.
    pub contiguity: Contiguity,
    /// Whether reads are packed.
    pub reads: PackReads,
    /// Whether the card packs reliable writes (`EN_REL_WR`).
    pub reliable: ReliableWrites,
}

/// Whether the card packs reliable writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReliableWrites {
    /// It does, as cards of eMMC 4.5 do.
    Packed,
    /// It does not.
    Alone,
}

impl PackRules {
    /// The phone's rules: sequential writes, up to 62 requests.
    pub const PHONE: Self = Self {
        order: StopOrder::Samsung,
        max_requests: 62,
        contiguity: Contiguity::Needed,
        reads: PackReads::No,
        reliable: ReliableWrites::Packed,
    };

    /// No packing.
    pub const OFF: Self = Self {
        max_requests: 1,
        ..Self::PHONE
    };
}

/// Whether a request is written reliably: FUA, and metadata (as in the phone's driver).
#[must_use]
pub fn is_reliable(request: &Request) -> bool {
    request.operation == Operation::Write
        && (request.flags.contains(RequestFlags::FUA) || request.flags.contains(RequestFlags::META))
}

/// The gathered requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Requests, in order; at least one.
    pub requests: Vec<RequestId>,
    /// Reason why it ended; `None` if the first request cannot be packed.
    pub stop: Option<Stop>,
    /// Number of requests fetched, including the requeued one.
    pub fetched: u32,
}

/// Gathers the requests to be packed with `first` into `out`.
pub fn gather(
    queue: &mut RequestQueue,
    rules: &PackRules,
    host: &HostFile,
    first: RequestId,
    now: Nanos,
    out: &mut Gathered,
) {
    out.requests.clear();
    out.requests.push(first);
    (out.stop, out.fetched) = (None, 0);
    let request = queue.get(first);
    let packs = match request.operation {
        Operation::Write => true,
        Operation::Read => rules.reads == PackReads::Yes,
        _ => false,
    };
    let refused = rules.reliable == ReliableWrites::Alone && is_reliable(request);
    if rules.max_requests < 2 || !packs || refused {
        return;
    }
    let direction = request.operation;
    let mut load = Load {
        sectors: request.sectors + 1,
        segments: host.segments(request.sectors * 512) + 1,
        end: request.end(),
    };
    let mut count = 1;
    out.stop = Some(loop {
        if count == rules.max_requests {
            break Stop::FullCount;
        }
        let Some(next) = queue.dispatch(now) else {
            break Stop::NoRequest;
        };
        out.fetched += 1;
        let request = queue.get(next);
        let after = Load {
            sectors: load.sectors + request.sectors,
            segments: load.segments + host.segments(request.sectors * 512),
            end: request.end(),
        };
        let failed = rules
            .order
            .tests()
            .iter()
            .find(|test| fails(**test, request, direction, &load, &after, rules, host));
        if let Some(stop) = failed {
            queue.requeue(next);
            break *stop;
        }
        out.requests.push(next);
        load = after;
        count += 1;
    });
}

struct Load {
    sectors: u64,
    segments: u32,
    end: u64,
}

fn fails(
    test: Stop,
    next: &Request,
    direction: Operation,
    load: &Load,
    after: &Load,
    rules: &PackRules,
    host: &HostFile,
) -> bool {
    match test {
        Stop::Sync => !matches!(next.operation, Operation::Read | Operation::Write),
        Stop::Random => rules.contiguity == Contiguity::Needed && next.sector != load.end,
        Stop::Read => next.operation != direction,
        Stop::Reliable => rules.reliable == ReliableWrites::Alone && is_reliable(next),
        Stop::Fua => next.flags.contains(RequestFlags::FUA),
        Stop::FullSectors => after.sectors > u64::from(host.max_sectors),
        Stop::FullSegments => after.segments > host.max_segments,
        Stop::NoRequest | Stop::FullCount => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Bio, QueueRules, SchedulerKind};

    const SMALL: u64 = 8;
    const LARGE: u64 = 1024;

    const fn bio(operation: Operation, sector: u64, sectors: u64, flags: RequestFlags) -> Bio {
        Bio {
            sector,
            sectors,
            operation,
            flags,
            context: 0,
        }
    }

    const fn write(sector: u64, sectors: u64) -> Bio {
        bio(Operation::Write, sector, sectors, RequestFlags(0))
    }

    /// Gathers from a queue of these requests, each of its own task; they are not merged.
    fn gathered(rules: &PackRules, bios: &[Bio]) -> (usize, Option<Stop>, Option<u64>) {
        let mut queue = RequestQueue::new(QueueRules::usual(SchedulerKind::Noop), bios.len());
        let submit = |queue: &mut RequestQueue, actor: u16, bio: &Bio| {
            queue.add(actor, bio, Nanos::ZERO).unwrap();
            queue.unplug(actor, Nanos::ZERO);
        };
        // Requests that bypass the scheduler have to be submitted after the first was fetched.
        let scheduled = |bio: &&(u16, &Bio)| !bio.1.flags.contains(RequestFlags::FUA);
        let numbered: Vec<(u16, &Bio)> = (0..).zip(bios).collect();
        for (actor, bio) in numbered.iter().filter(scheduled) {
            submit(&mut queue, *actor, bio);
        }
        let host = HostFile::preset("mshci").unwrap();
        let first = queue.dispatch(Nanos::ZERO).unwrap();
        for (actor, bio) in numbered.iter().filter(|bio| !scheduled(bio)) {
            submit(&mut queue, *actor, bio);
        }
        let mut out = Gathered::default();
        gather(&mut queue, rules, &host, first, Nanos::ZERO, &mut out);
        let back = queue.dispatch(Nanos::ZERO).map(|id| queue.get(id).sector);
        (out.requests.len(), out.stop, back)
    }

    /// 7 x 1024 + 1 = 7169 sectors and 7 x 128 + 1 = 897 segments; an eighth request would make 8193 > 8192.
    #[test]
    fn seven_requests_of_512_kib_fit_not_eight() {
        let bios: Vec<Bio> = (0..10).map(|n| write(n * LARGE, LARGE)).collect();
        let found = gathered(&PackRules::PHONE, &bios);
        assert_eq!(found, (7, Some(Stop::FullSectors), Some(7 * LARGE)));
    }

    #[test]
    fn a_gap_ends_a_sequential_pack_and_goes_back_to_the_head() {
        let bios = [
            write(0, SMALL),
            write(8, SMALL),
            write(100, SMALL),
            write(16, SMALL),
        ];
        assert_eq!(
            gathered(&PackRules::PHONE, &bios),
            (2, Some(Stop::Random), Some(100))
        );
        let free = PackRules {
            contiguity: Contiguity::Free,
            ..PackRules::PHONE
        };
        assert_eq!(gathered(&free, &bios), (4, Some(Stop::NoRequest), None));
    }

    #[test]
    fn a_read_elsewhere_is_random_for_samsung_and_a_read_for_mainline() {
        let bios = [
            write(0, SMALL),
            write(8, SMALL),
            bio(Operation::Read, 500, SMALL, RequestFlags(0)),
        ];
        assert_eq!(gathered(&PackRules::PHONE, &bios).1, Some(Stop::Random));
        let mainline = PackRules {
            order: StopOrder::Mainline,
            ..PackRules::PHONE
        };
        assert_eq!(gathered(&mainline, &bios).1, Some(Stop::Read));
    }

    #[test]
    fn a_read_at_the_end_is_a_read_for_both() {
        let bios = [write(0, SMALL), bio(Operation::Read, 8, SMALL, RequestFlags(0))];
        assert_eq!(gathered(&PackRules::PHONE, &bios), (1, Some(Stop::Read), Some(8)));
    }

    #[test]
    fn a_flush_ends_a_pack_as_sync() {
        let bios = [
            write(0, SMALL),
            bio(Operation::Flush, 0, 0, RequestFlags::PREFLUSH),
        ];
        // Flushes bypass the scheduler, so this has to be submitted after the first was fetched.
        let mut queue = RequestQueue::new(QueueRules::usual(SchedulerKind::Noop), 2);
        queue.submit(0, &bios[0], Nanos::ZERO);
        queue.unplug(0, Nanos::ZERO);
        let first = queue.dispatch(Nanos::ZERO).unwrap();
        queue.submit(1, &bios[1], Nanos::ZERO);
        queue.unplug(1, Nanos::ZERO);
        let host = HostFile::preset("mshci").unwrap();
        let mut out = Gathered::default();
        gather(&mut queue, &PackRules::PHONE, &host, first, Nanos::ZERO, &mut out);
        assert_eq!(out.stop, Some(Stop::Sync));
    }

    #[test]
    fn reliable_writes_stop_a_pack_only_where_the_card_does_not_pack_them() {
        let bios = [
            write(0, SMALL),
            bio(Operation::Write, 8, SMALL, RequestFlags::FUA),
        ];
        assert_eq!(gathered(&PackRules::PHONE, &bios).1, Some(Stop::NoRequest));
        let alone = PackRules {
            reliable: ReliableWrites::Alone,
            ..PackRules::PHONE
        };
        assert_eq!(gathered(&alone, &bios).1, Some(Stop::Reliable));
    }

    #[test]
    fn msm_looks_for_fua_first_and_for_gaps_last() {
        let msm = PackRules {
            order: StopOrder::Msm,
            ..PackRules::PHONE
        };
        let fua = bio(Operation::Write, 500, SMALL, RequestFlags::FUA);
        assert_eq!(gathered(&msm, &[write(0, SMALL), fua]).1, Some(Stop::Fua));
        let bios: Vec<Bio> = (0..7)
            .map(|n| write(n * LARGE, LARGE))
            .chain([write(99_999, LARGE)])
            .collect();
        assert_eq!(gathered(&msm, &bios).1, Some(Stop::FullSectors));
    }

    #[test]
    fn as_many_as_allowed_and_none_is_fetched_beyond() {
        let rules = PackRules {
            max_requests: 3,
            ..PackRules::PHONE
        };
        let bios: Vec<Bio> = (0..5).map(|n| write(n * SMALL, SMALL)).collect();
        assert_eq!(gathered(&rules, &bios), (3, Some(Stop::FullCount), Some(24)));
        assert_eq!(gathered(&PackRules::OFF, &bios), (1, None, Some(8)));
    }

    /// 1024 segments of 4 KiB: requests of one sector take a segment each. The limit of 62 requests is raised so that
    /// the segment limit applies: 1023 requests and the header.
    #[test]
    fn segments_are_a_limit_of_their_own() {
        let rules = PackRules {
            max_requests: 5000,
            ..PackRules::PHONE
        };
        let mut queue = RequestQueue::new(
            QueueRules {
                limit: 2000,
                ..QueueRules::usual(SchedulerKind::Noop)
            },
            2,
        );
        for n in 0..1100_u64 {
            queue.add(0, &write(n, 1), Nanos::ZERO).unwrap();
            queue.unplug(0, Nanos::ZERO);
        }
        let host = HostFile::preset("mshci").unwrap();
        let first = queue.dispatch(Nanos::ZERO).unwrap();
        let mut out = Gathered::default();
        gather(&mut queue, &rules, &host, first, Nanos::ZERO, &mut out);
        assert_eq!((out.requests.len(), out.stop), (1023, Some(Stop::FullSegments)));
    }

    #[test]
    fn reads_go_alone_unless_they_are_to_be_packed() {
        let read = |sector| bio(Operation::Read, sector, SMALL, RequestFlags(0));
        assert_eq!(
            gathered(&PackRules::PHONE, &[read(0), read(8)]),
            (1, None, Some(8))
        );
        let packed = PackRules {
            reads: PackReads::Yes,
            ..PackRules::PHONE
        };
        assert_eq!(gathered(&packed, &[read(0), read(8)]).0, 2);
    }
}
