//! Measures the cost of the block tracer per I/O: random reads of 4 KiB past the page cache, without a tracer and under
//! those of two builds of `tidegate`, in an order drawn anew for each round.
//!
//!     cargo run -p trace --example cost -- A/tidegate B/tidegate [--rounds 15] [--reads 100000] [--device DEV]
//!         [--seed 1] [--raw FILE]
//!
//! Needs root. Without `--device` it reads a loop device over memory that it makes. Prints the medians of the wall time and
//! of the machine's processor time per read (the tracer's own thread included), with their differences to no tracer;
//! `--raw` gets each sample as a line of JSON. Nothing else may run meanwhile.
//!
//! `cost load DEVICE READS DEPTH SEED OUTPUT` is the load, which the tracers start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write, stdout};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use io_uring::{IoUring, opcode, types};

const BLOCK: usize = 4096;
/// Reads before the timed ones.
const WARM_UP: u64 = 2000;
const DEVICE_BYTES: u64 = 256 << 20;
/// Reads in flight: alone by pread, several by io_uring.
const DEPTHS: [u32; 2] = [1, 32];
const TRACERS: [&str; 3] = ["none", "A", "B"];

type Outcome<T> = Result<T, String>;

fn failed(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["load", device, reads, depth, seed, output] => load(device, reads, depth, seed, output),
        [a, b, options @ ..] if !a.starts_with('-') => compare([a, b], options),
        _ => Err("expected two programs; see the head of this example".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let _ = writeln!(stdout(), "cost: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Nanoseconds per read.
#[derive(Clone, Copy, Debug)]
struct Sample {
    wall: f64,
    processors: f64,
}

struct Random(u64);

impl Random {
    const fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A loop device over a file in memory; gone with the value.
struct Device {
    name: String,
    image: PathBuf,
}

impl Device {
    fn make() -> Outcome<Self> {
        let image = PathBuf::from(format!("/dev/shm/tidegate-cost-{}", std::process::id()));
        let file = File::create_new(&image).map_err(|error| failed("the image", error))?;
        // Real content: holes would be read in another way.
        let block = vec![0xA5; 1 << 20];
        for _ in 0..DEVICE_BYTES >> 20 {
            (&file)
                .write_all(&block)
                .map_err(|error| failed("the image", error))?;
        }
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&image)
            .output()
            .map_err(|error| failed("losetup", error))?;
        if !output.status.success() {
            let _ = fs::remove_file(&image);
            return Err(failed("losetup", String::from_utf8_lossy(&output.stderr)));
        }
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { name, image })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.name]).status();
        let _ = fs::remove_file(&self.image);
    }
}

fn compare(programs: [&str; 2], options: &[&str]) -> Outcome<()> {
    let option = |name: &str| {
        let at = options.iter().position(|word| *word == name)?;
        options.get(at + 1).copied()
    };
    let number = |name: &str, default: u64| {
        option(name).map_or(Ok(default), |text| {
            text.parse().map_err(|error| failed(name, error))
        })
    };
    let (rounds, reads, seed) = (
        number("--rounds", 15)?,
        number("--reads", 100_000)?,
        number("--seed", 1)?,
    );
    let made = match option("--device") {
        Some(_) => None,
        None => Some(Device::make()?),
    };
    let device = option("--device").or(made.as_ref().map(|made| made.name.as_str()));
    let device = device.ok_or("no device")?;
    let mut raw = match option("--raw") {
        Some(path) => Some(File::create(path).map_err(|error| failed(path, error))?),
        None => None,
    };
    let mut random = Random(seed);
    let mut samples: Vec<(usize, u32, Sample)> = Vec::new();
    for round in 0..rounds {
        let mut order: Vec<(usize, u32)> = DEPTHS
            .iter()
            .flat_map(|depth| (0..TRACERS.len()).map(|tracer| (tracer, *depth)))
            .collect();
        for last in (1..order.len()).rev() {
            let other = usize::try_from(random.below(u64::try_from(last + 1).unwrap_or(1))).unwrap_or(0);
            order.swap(last, other);
        }
        for (tracer, depth) in order {
            let program = tracer.checked_sub(1).and_then(|at| programs.get(at)).copied();
            let sample = run(program, device, reads, depth, seed + round)?;
            samples.push((tracer, depth, sample));
            if let Some(raw) = &mut raw {
                writeln!(
                    raw,
                    "{{\"round\": {round}, \"tracer\": \"{}\", \"depth\": {depth}, \"reads\": {reads}, \
                     \"wall_ns\": {:.1}, \"processors_ns\": {:.1}}}",
                    TRACERS[tracer], sample.wall, sample.processors
                )
                .map_err(|error| failed("--raw", error))?;
            }
        }
    }
    print(&samples, rounds, reads).map_err(|error| failed("output", error))
}

/// One run of the load, as the command of a tracer if one is given.
fn run(program: Option<&str>, device: &str, reads: u64, depth: u32, seed: u64) -> Outcome<Sample> {
    let this = std::env::current_exe().map_err(|error| failed("this program", error))?;
    let base = format!("/dev/shm/tidegate-cost-{}", std::process::id());
    let (result, trace) = (format!("{base}.result"), format!("{base}.trace"));
    let mut command = match program {
        None => Command::new(&this),
        Some(program) => {
            let mut command = Command::new(program);
            command.args(["trace", "record", "-d", device, "-o", &trace, "--force", "--"]);
            command.arg(&this);
            command
        }
    };
    command.args([
        "load",
        device,
        &reads.to_string(),
        &depth.to_string(),
        &seed.to_string(),
        &result,
    ]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(program.unwrap_or("the load"), error))?;
    let told = fs::read_to_string(&result);
    let _ = (fs::remove_file(&result), fs::remove_dir_all(&trace));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(failed(program.unwrap_or("the load"), said));
    }
    let told = told.map_err(|error| failed("the load's result", error))?;
    let mut numbers = told.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(wall)), Some(Ok(processors))) => Ok(Sample { wall, processors }),
        _ => Err(format!("the load's result: {told:?}")),
    }
}

fn print(samples: &[(usize, u32, Sample)], rounds: u64, reads: u64) -> io::Result<()> {
    let mut out = stdout().lock();
    writeln!(
        out,
        "{rounds} rounds of {reads} reads of 4 KiB; medians, ns per read, and above no tracer"
    )?;
    writeln!(
        out,
        "{:>5} {:>6} {:>10} {:>10} {:>12} {:>12}",
        "depth", "tracer", "wall", "+", "processors", "+"
    )?;
    for depth in DEPTHS {
        let median = |tracer: usize, value: fn(&Sample) -> f64| {
            let its = samples.iter().filter(|one| (one.0, one.1) == (tracer, depth));
            let mut values: Vec<f64> = its.map(|(_, _, sample)| value(sample)).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let wall = |tracer| median(tracer, |sample| sample.wall);
        let processors = |tracer| median(tracer, |sample| sample.processors);
        for (tracer, name) in TRACERS.iter().enumerate() {
            writeln!(
                out,
                "{depth:>5} {name:>6} {:>10.0} {:>10.0} {:>12.0} {:>12.0}",
                wall(tracer),
                wall(tracer) - wall(0),
                processors(tracer),
                processors(tracer) - processors(0)
            )?;
        }
    }
    Ok(())
}

fn load(device: &str, reads: &str, depth: &str, seed: &str, output: &str) -> Outcome<()> {
    let parse = |text: &str| text.parse::<u64>().map_err(|error| failed(text, error));
    let (reads, depth) = (parse(reads)?, u32::try_from(parse(depth)?).unwrap_or(1));
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(device)
        .map_err(|error| failed(device, error))?;
    let blocks =
        rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| failed(device, error))?;
    let mut offsets = Offsets {
        random: Random(parse(seed)?),
        blocks: blocks / 4096,
    };
    let sample = if depth == 1 {
        alone(&file, reads, &mut offsets)
    } else {
        several(&file, reads, depth, &mut offsets)
    };
    let Sample { wall, processors } = sample.map_err(|error| failed(device, error))?;
    let mut result = File::create(Path::new(output)).map_err(|error| failed(output, error))?;
    writeln!(result, "{wall} {processors}").map_err(|error| failed(output, error))
}

struct Offsets {
    random: Random,
    blocks: u64,
}

impl Offsets {
    const fn next(&mut self) -> u64 {
        self.random.below(self.blocks) * 4096
    }
}

/// Memory whose part from the returned place on is aligned.
fn buffer(blocks: usize) -> (Vec<u8>, usize) {
    let memory = vec![0; (blocks + 1) * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    (memory, start)
}

/// Begin of the timed part.
struct Clock {
    wall: Instant,
    busy: u64,
}

impl Clock {
    fn start() -> io::Result<Self> {
        Ok(Self {
            busy: busy_ns()?,
            wall: Instant::now(),
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "durations of seconds, in nanoseconds")]
    #[expect(clippy::as_conversions, reason = "as above")]
    fn stop(&self, reads: u64) -> io::Result<Sample> {
        let wall = self.wall.elapsed().as_nanos();
        let busy = busy_ns()? - self.busy;
        Ok(Sample {
            wall: wall as f64 / reads as f64,
            processors: busy as f64 / reads as f64,
        })
    }
}

/// Time for which the processors were not idle, by `/proc/stat` in its units of 10 ms.
fn busy_ns() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields = text.lines().next().unwrap_or("").split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, then idle and waiting; then interrupts.
    let busy = ticks
        .iter()
        .take(3)
        .chain(ticks.iter().skip(5).take(2))
        .sum::<u64>();
    Ok(busy * 10_000_000)
}

fn alone(file: &File, reads: u64, offsets: &mut Offsets) -> io::Result<Sample> {
    let (mut memory, start) = buffer(1);
    let block = &mut memory[start..start + BLOCK];
    for _ in 0..WARM_UP {
        file.read_exact_at(block, offsets.next())?;
    }
    let clock = Clock::start()?;
    for _ in 0..reads {
        file.read_exact_at(block, offsets.next())?;
    }
    clock.stop(reads)
}

fn several(file: &File, reads: u64, depth: u32, offsets: &mut Offsets) -> io::Result<Sample> {
    let mut ring = IoUring::new(depth)?;
    let places = usize::try_from(depth).unwrap_or(1);
    let (mut memory, start) = buffer(places);
    let base = memory[start..].as_mut_ptr();
    let mut free: Vec<usize> = (0..places).collect();
    let (mut submitted, mut ended) = (0, 0);
    let mut clock = Clock::start()?;
    while ended < WARM_UP + reads {
        while submitted < WARM_UP + reads
            && let Some(place) = free.pop()
        {
            // The block of each place lies in the buffer, which outlives the ring's use of it: all reads are waited for.
            let block = base.wrapping_add(place * BLOCK);
            let length = u32::try_from(BLOCK).unwrap_or(0);
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), block, length)
                .offset(offsets.next())
                .build()
                .user_data(u64::try_from(place).unwrap_or(0));
            // SAFETY: the descriptor and the block are valid until the read has completed, and no other read uses it.
            unsafe { ring.submission().push(&read) }.map_err(io::Error::other)?;
            submitted += 1;
        }
        ring.submit_and_wait(1)?;
        let done: Vec<(u64, i32)> = ring
            .completion()
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        for (place, result) in done {
            if usize::try_from(result).ok() != Some(BLOCK) {
                return Err(io::Error::other(format!("a read returned {result}")));
            }
            free.push(usize::try_from(place).unwrap_or(0));
            ended += 1;
            if ended == WARM_UP {
                clock = Clock::start()?;
            }
        }
    }
    clock.stop(reads)
}
