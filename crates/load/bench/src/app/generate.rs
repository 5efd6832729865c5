//! Generates a trace from an application's table: a pure function of application, seed and scale.

use std::collections::HashMap;
use std::path::PathBuf;

use results::call_trace::{Action, Handle, Layer, OpenFlags, Trace};

use super::exact::{Keep, numbers};
use super::table::{Application, Direction, Order, Place, Stream};
use crate::error::BenchError;
use crate::random::Random;

/// Sizes and offsets of block requests are multiples of this.
const BLOCK_BYTES: u64 = 4096;

/// The smallest number of requests for which shares are meaningful.
const REQUESTS_MIN: u64 = 40;

/// 1.0 in parts per million.
const MILLION: u64 = 1_000_000;

/// Largest factor by which a workload may be enlarged.
const SCALE_PPM_MAX: u64 = 100 * MILLION;

/// The fraction of an application to run: requests, bytes and duration are multiplied, shares and sizes stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Parts per million.
    pub ppm: u64,
}

impl Scale {
    /// The whole application.
    pub const WHOLE: Self = Self { ppm: MILLION };

    /// Scales a number, rounded to the nearest integer.
    #[must_use]
    pub fn of(self, number: u64) -> u64 {
        let product = u128::from(number) * u128::from(self.ppm) + u128::from(MILLION / 2);
        u64::try_from(product / u128::from(MILLION)).unwrap_or(u64::MAX)
    }
}

/// One request of a stream, before it is assigned a time.
#[derive(Clone, Copy, Debug)]
struct Request {
    file: u64,
    offset: u64,
    bytes: u64,
    is_synced: bool,
}

impl Application {
    /// Generates the trace of this application for a seed, at a scale.
    ///
    /// # Errors
    /// [`BenchError::Spec`] if the scale leaves too few requests for the shares, or is far too large.
    pub fn generate(&self, seed: u64, scale: Scale) -> Result<Trace, BenchError> {
        let count = scale.of(self.requests());
        if count < REQUESTS_MIN || scale.ppm > SCALE_PPM_MAX {
            let smallest = results::nearest_f64(REQUESTS_MIN) / results::nearest_f64(self.requests());
            let found = results::nearest_f64(scale.ppm) / 1e6;
            let problem = format!(
                "{found} is {count} requests of {}, expected {smallest:.4} to 100",
                self.name
            );
            return Err(BenchError::spec("scale", problem));
        }
        let streams: Vec<Vec<Request>> = self
            .streams
            .iter()
            .map(|stream| self.requests_of(stream, seed, scale))
            .collect::<Result<_, _>>()?;
        let mut order: Vec<usize> = streams
            .iter()
            .enumerate()
            .flat_map(|(stream, requests)| std::iter::repeat_n(stream, requests.len()))
            .collect();
        Random::named(seed, "order of streams").shuffle(&mut order);
        let times = self.times(seed, scale, u64::try_from(order.len()).unwrap_or(u64::MAX))?;
        let mut writer = Writer::new(self);
        let mut left: Vec<_> = streams.iter().map(|requests| requests.iter()).collect();
        for (stream, at_ns) in order.into_iter().zip(times) {
            let request = left[stream]
                .next()
                .expect("each stream is in the order as often as it has requests");
            writer.request(stream, &self.streams[stream], *request, at_ns);
        }
        Ok(writer.finish())
    }

    const fn unit_bytes(&self) -> u64 {
        match self.layer {
            Layer::SystemCalls => 1,
            Layer::Block => BLOCK_BYTES,
        }
    }

    fn requests_of(&self, stream: &Stream, seed: u64, scale: Scale) -> Result<Vec<Request>, BenchError> {
        let random = |what: &str| Random::named(seed, &format!("{} of {}", what, stream.name));
        let unit = self.unit_bytes();
        let count = scale.of(stream.requests.value);
        if count == 0 {
            return Ok(Vec::new());
        }
        let bytes = scale.of(stream.bytes.value / unit).max(count) * unit;
        let sizes = stream.sizes.value;
        let sizes = numbers(
            sizes.buckets,
            sizes.keep,
            count,
            bytes,
            unit,
            &mut random("sizes"),
        )
        .map_err(|(low, high)| {
            let problem = format!(
                "`{}` of {} would be {bytes} bytes in {count} requests, whose sizes allow {low} to {high}; \
                     choose a larger scale",
                stream.name, self.name
            );
            BenchError::spec("scale", problem)
        })?;
        let sizes = match stream.sizes.value.order {
            Order::Shuffled => sizes,
            Order::LargestInRuns(length) => largest_in_runs(&sizes, length),
        };
        let continues = chosen(count, stream.sequential_permille.value, 1, &mut random("runs"));
        let synced = chosen(count, stream.synced_permille.value, 0, &mut random("syncs"));
        let positions = positions(
            stream.place.value,
            scale,
            unit,
            &sizes,
            &continues,
            &mut random("places"),
        );
        let requests = positions.into_iter().zip(sizes).zip(synced);
        Ok(requests
            .map(|(((file, offset), bytes), is_synced)| Request {
                file,
                offset,
                bytes,
                is_synced,
            })
            .collect())
    }

    /// Issue times of the requests: the first at 0, the last at the duration.
    fn times(&self, seed: u64, scale: Scale, count: u64) -> Result<Vec<u64>, BenchError> {
        let duration_ns = scale.of(self.duration_ms.value * 1_000_000);
        let mut random = Random::named(seed, "gaps");
        let gaps = numbers(
            self.gaps.value.buckets,
            Keep::Shape,
            count - 1,
            duration_ns,
            1,
            &mut random,
        );
        let gaps = gaps.map_err(|(low, high)| {
            let problem = format!("gaps of {} ns in all, expected {low} to {high}", duration_ns);
            BenchError::spec("scale", problem)
        })?;
        let later = gaps.into_iter().scan(0, |at_ns, gap| {
            *at_ns += gap;
            Some(*at_ns)
        });
        Ok(std::iter::once(0).chain(later).collect())
    }
}

/// Selects exactly this share of `count` positions at random, never one of the first `spared`.
fn chosen(count: u64, permille: u64, spared: u64, random: &mut Random) -> Vec<bool> {
    let free = count - spared;
    let wanted = ((count * permille + 500) / 1000).min(free);
    let mut places: Vec<bool> = (0..free).map(|place| place < wanted).collect();
    random.shuffle(&mut places);
    (0..spared).map(|_| false).chain(places).collect()
}

/// Groups the largest numbers into runs of `length`; the others go between the runs, in their original order.
fn largest_in_runs(numbers: &[u64], length: usize) -> Vec<u64> {
    let largest = numbers.iter().max().copied().unwrap_or_default();
    let (whole, others): (Vec<u64>, Vec<u64>) = numbers.iter().partition(|number| **number == largest);
    let length = length.max(1);
    let runs = whole.len().div_ceil(length).max(1);
    let mut ordered = Vec::with_capacity(numbers.len());
    for run in 0..runs {
        let end = (run * length + length).min(whole.len());
        ordered.extend(&whole[run * length..end]);
        ordered.extend(&others[others.len() * run / runs..others.len() * (run + 1) / runs]);
    }
    ordered
}

/// File and offset of each request: a run of consecutive requests begins at a random offset.
fn positions(
    place: Place,
    scale: Scale,
    unit: u64,
    sizes: &[u64],
    continues: &[bool],
    random: &mut Random,
) -> Vec<(u64, u64)> {
    let mut found = Vec::with_capacity(sizes.len());
    let mut next = (0, 0);
    for (index, size) in sizes.iter().enumerate() {
        if !continues[index] {
            let run = continues[index + 1..]
                .iter()
                .take_while(|continues| **continues)
                .count();
            let run_bytes: u64 = sizes[index..=index + run].iter().sum();
            let within = |bytes: u64, random: &mut Random| {
                random.below(bytes.saturating_sub(run_bytes) / unit + 1) * unit
            };
            next = match place {
                Place::Files { count, bytes, .. } => {
                    let file_bytes = scale.of(bytes / count).max(unit);
                    (random.below(count), within(file_bytes, random))
                }
                Place::NewFile { .. } => next,
                Place::Region { start_bytes, bytes } => (0, start_bytes + within(bytes, random)),
            };
        }
        found.push(next);
        next.1 += size;
    }
    found
}

/// Builds the trace; all calls belong to one thread.
struct Writer {
    trace: Trace,
    open: HashMap<(usize, u64), Handle>,
    in_order: Vec<Handle>,
    /// Files that the trace creates: they are synced before they are closed.
    made: Vec<Handle>,
    last_ns: u64,
}

impl Writer {
    fn new(application: &Application) -> Self {
        Self {
            trace: Trace::new(application.layer, format!("generator {}", application.name)),
            open: HashMap::new(),
            in_order: Vec::new(),
            made: Vec::new(),
            last_ns: 0,
        }
    }

    fn request(&mut self, number: usize, stream: &Stream, request: Request, at_ns: u64) {
        self.last_ns = at_ns;
        let Request { offset, bytes, .. } = request;
        let (action, sync) = match (stream.place.value, stream.direction) {
            (Place::Region { .. }, Direction::Read) => {
                (Action::BlockRead { offset, bytes }, Action::BlockFlush)
            }
            (Place::Region { .. }, Direction::Write) => {
                (Action::BlockWrite { offset, bytes }, Action::BlockFlush)
            }
            (place, direction) => {
                let handle = self.handle(number, place, direction, request.file, at_ns);
                let action = match direction {
                    Direction::Read => Action::ReadAt {
                        handle,
                        bytes,
                        offset,
                    },
                    Direction::Write => Action::WriteAt {
                        handle,
                        bytes,
                        offset,
                    },
                };
                (action, Action::Fsync { handle })
            }
        };
        self.trace.push(0, at_ns, action);
        if request.is_synced {
            self.trace.push(0, at_ns, sync);
        }
    }

    fn handle(&mut self, stream: usize, place: Place, direction: Direction, file: u64, at_ns: u64) -> Handle {
        if let Some(handle) = self.open.get(&(stream, file)) {
            return *handle;
        }
        let (path, flags) = match (place, direction) {
            (Place::NewFile { name }, _) => (PathBuf::from(name), OpenFlags::WRITE.creating().truncating()),
            (Place::Files { folder, .. }, Direction::Read) => (member(folder, file), OpenFlags::READ),
            (Place::Files { folder, .. }, Direction::Write) => (member(folder, file), OpenFlags::READ_WRITE),
            (Place::Region { .. }, _) => unreachable!("block requests have no descriptors"),
        };
        let name = self.trace.name(&path);
        let handle = self.trace.new_handle();
        self.trace.push(0, at_ns, Action::Open { name, handle, flags });
        self.open.insert((stream, file), handle);
        self.in_order.push(handle);
        if matches!(place, Place::NewFile { .. }) {
            self.made.push(handle);
        }
        handle
    }

    fn finish(mut self) -> Trace {
        for handle in self.in_order {
            if self.made.contains(&handle) {
                self.trace.push(0, self.last_ns, Action::Fsync { handle });
            }
            self.trace.push(0, self.last_ns, Action::Close { handle });
        }
        self.trace
    }
}

fn member(folder: &str, file: u64) -> PathBuf {
    PathBuf::from(format!("{folder}/{file:03}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_in_runs_and_the_others_between_them_in_their_order() {
        let numbers = [9, 1, 9, 2, 9, 3, 9, 4, 9];
        assert_eq!(largest_in_runs(&numbers, 2), [9, 9, 1, 9, 9, 2, 9, 3, 4]);
        assert_eq!(largest_in_runs(&[], 2), Vec::<u64>::new());
    }
}
