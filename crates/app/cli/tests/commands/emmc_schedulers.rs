//! Differential test of the model's mq-deadline: the lab guest's kernel schedules requests to a slow null_blk device, and
//! the model gets the same arrivals and must dispatch the same requests. Runs only with `TIDEGATE_FULL`, like the other
//! tests that need a guest.

use emmc::block::{Continues, Deadline, DeadlineRules, Pool, Request, RequestId, Scheduler};
use media::Nanos;
use results::block_trace::{Operation, RequestFlags};
use testkit::lab::Job;

/// A device with one request at a time, each of 20 ms, and a scheduler with room for 128 waiting requests. fio keeps up to
/// 64 of them waiting, reads and writes at random places, in bursts of 16.
///
/// One processor: two of them may take requests from the scheduler at the same time and pass each other on the way to the
/// device.
const SCRIPT: &str = r"
other=/sys/devices/system/cpu/cpu1/online
if [ -e $other ]; then
    echo 0 >$other || exit 9
    trap 'echo 1 >$other' EXIT
fi
modprobe null_blk nr_devices=1 queue_mode=2 submit_queues=1 hw_queue_depth=1 irqmode=2 completion_nsec=20000000 gb=1 || exit 2
tries=100
until [ -b /dev/nullb0 ]; do
    [ $((tries -= 1)) -gt 0 ] || exit 3
    sleep 0.1
done
queue=/sys/block/nullb0/queue
echo mq-deadline >$queue/scheduler || exit 4
echo 128 >$queue/nr_requests || exit 5
echo 2 >$queue/nomerges
for setting in $SETTINGS; do
    echo ${setting#*=} >$queue/iosched/${setting%=*} || exit 6
done
cd /sys/kernel/tracing || exit 7
echo 8192 >buffer_size_kb
for event in block_rq_insert block_rq_issue block_rq_complete; do
    echo 1 >events/block/$event/enable
done
: >trace
fio --name=load --filename=/dev/nullb0 --direct=1 --ioengine=libaio --rw=randrw --rwmixread=$READS --bs=4k --size=256m \
    --iodepth=64 --iodepth_batch_submit=16 --iodepth_batch_complete_min=16 --number_ios=400 --randseed=$SEED \
    --norandommap >/host/fio.txt 2>&1 || exit 8
cat trace >/host/trace
uname -r >/host/release
modprobe -r null_blk
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Insert,
    Issue,
    Complete,
}

#[derive(Clone, Copy, Debug)]
struct Happened {
    kind: Kind,
    at: Nanos,
    operation: Operation,
    sector: u64,
}

/// `fio-7 [000] d..1. 12.345678: block_rq_insert: 252,0 R 4096 () 800 + 8 [fio]`, and the same for the others.
fn happened(line: &str) -> Option<Happened> {
    let (head, tail) = line.split_once(": block_rq_")?;
    let (word, rest) = tail.split_once(": ")?;
    let kind = match word {
        "insert" => Kind::Insert,
        "issue" => Kind::Issue,
        "complete" => Kind::Complete,
        _ => return None,
    };
    let seconds: f64 = head.split_whitespace().next_back()?.parse().ok()?;
    let mut words = rest.split_whitespace();
    let operation = match words.nth(1)?.chars().next()? {
        'R' => Operation::Read,
        'W' => Operation::Write,
        _ => return None,
    };
    let (before, _) = rest.split_once(" + ")?;
    let sector = before.split_whitespace().next_back()?.parse().ok()?;
    let at = Nanos(u64::try_from(std::time::Duration::from_secs_f64(seconds).as_nanos()).ok()?);
    Some(Happened {
        kind,
        at,
        operation,
        sector,
    })
}

/// Linux before 6.5 continues with the next request, later ones from the position.
fn version(release: &str) -> Continues {
    let mut numbers = release
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or_default());
    let version = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    if version < (6, 5) {
        Continues::NextOfDirection
    } else {
        Continues::Position
    }
}

/// Follows the kernel: it takes a request from the scheduler as soon as the one before it was issued, and that one waits
/// for the device. Returns how many agree, or the first difference.
fn follow(events: &[Happened], rules: DeadlineRules) -> Result<usize, String> {
    let (mut scheduler, mut pool) = (Deadline::new(rules), Pool::default());
    let (mut agreed, mut idle) = (0, true);
    // The next request by the model, and by models whose clocks are a little behind or ahead: the kernel's has 4 ms.
    let mut taken: Vec<(Deadline, Pool, Option<RequestId>)> = Vec::new();
    let take = |scheduler: &Deadline, pool: &Pool, at: Nanos| {
        let times = [
            at,
            at.saturating_sub(Nanos::from_millis(8)),
            at + Nanos::from_millis(8),
        ];
        let mut all: Vec<(Deadline, Pool, Option<RequestId>)> = Vec::new();
        for time in times {
            let (mut scheduler, mut pool) = (scheduler.clone(), pool.clone());
            let id = scheduler.dispatch(&pool, time);
            if let Some(id) = id {
                pool.get_mut(id).waiting = false;
            }
            all.push((scheduler, pool, id));
        }
        all
    };
    for (place, event) in events.iter().enumerate() {
        match event.kind {
            Kind::Insert => {
                let request = Request {
                    sector: event.sector,
                    sectors: 8,
                    operation: event.operation,
                    flags: RequestFlags::default(),
                    actor: 0,
                    context: 0,
                    bios: 1,
                    queued: event.at,
                    inserted: event.at,
                    ticket: 0,
                    waiting: true,
                };
                if taken.is_empty() {
                    let id = pool.add(request);
                    scheduler.insert(&pool, id, event.at);
                } else {
                    for (scheduler, pool, _) in &mut taken {
                        let id = pool.add(request.clone());
                        scheduler.insert(pool, id, event.at);
                    }
                }
            }
            Kind::Issue => {
                if idle || taken.is_empty() {
                    taken = take(&scheduler, &pool, event.at);
                    idle = false;
                }
                let sector_of = |(_, pool, id): &(Deadline, Pool, Option<RequestId>)| {
                    id.map(|id| (pool.get(id).operation, pool.get(id).sector))
                };
                let wanted = Some((event.operation, event.sector));
                let found = taken.iter().position(|one| sector_of(one) == wanted);
                let Some(found) = found else {
                    return Err(format!(
                        "event {place} at {}: the kernel issued {wanted:?}, the model {:?}; {agreed} agreed before",
                        event.at,
                        taken.iter().map(sector_of).collect::<Vec<_>>()
                    ));
                };
                agreed += 1;
                (scheduler, pool, _) = taken.swap_remove(found);
                taken = take(&scheduler, &pool, event.at);
                if taken.iter().all(|(.., id)| id.is_none()) {
                    taken.clear();
                }
            }
            Kind::Complete => {}
        }
    }
    Ok(agreed)
}

#[test]
fn mq_deadline_dispatches_as_the_kernel_does() {
    if testkit::left_to_full("the guest's kernel is the judge") {
        return;
    }
    let Some(mut guest) = testkit::lab::shared() else {
        return;
    };
    for (seed, reads, settings) in [
        (1, 50, ""),
        (2, 80, "fifo_batch=4 writes_starved=1"),
        (3, 20, "read_expire=60000 write_expire=60000 fifo_batch=1"),
        (
            4,
            50,
            "read_expire=200 write_expire=700 fifo_batch=8 writes_starved=4",
        ),
    ] {
        let job = Job::new(SCRIPT)
            .variable("SEED", seed.to_string())
            .variable("READS", reads.to_string())
            .variable("SETTINGS", settings);
        let outcome = guest.run(&job).expect("the guest works").expect_success();
        let trace = outcome.read_text("trace").expect("a trace");
        let events: Vec<Happened> = trace.lines().filter_map(happened).collect();
        let setting = |name: &str, usual: u32| {
            let found = settings
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.map_or(usual, |number| number.parse().expect("a number"))
        };
        let milliseconds = |name, usual| Nanos::from_millis(u64::from(setting(name, usual)));
        let rules = DeadlineRules {
            expire: [
                milliseconds("read_expire", 500),
                milliseconds("write_expire", 5000),
            ],
            batch: setting("fifo_batch", 16),
            writes_starved: setting("writes_starved", 2),
            continues: version(&outcome.read_text("release").expect("a release")),
        };
        match follow(&events, rules) {
            Ok(agreed) => assert!(agreed >= 400, "{agreed} requests, seed {seed}"),
            Err(difference) => {
                if let Some(folder) = std::env::var_os("TIDEGATE_KEEP") {
                    let path = std::path::Path::new(&folder).join(format!("mq-deadline-{seed}.trace"));
                    std::fs::write(path, &trace).expect("the trace can be kept");
                }
                panic!("seed {seed}, {settings:?}: {difference}");
            }
        }
        // The judge can tell schedulers apart: one that takes turns otherwise differs.
        let other = DeadlineRules {
            writes_starved: rules.writes_starved + 3,
            batch: rules.batch + 3,
            ..rules
        };
        assert!(
            follow(&events, other).is_err(),
            "another scheduler passes, seed {seed}"
        );
    }
}
