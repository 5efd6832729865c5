//! Replays a generated application and adds its identity and claims to the record.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use results::call_trace::Layer;
use results::{ImpossibleLatency, nearest_f64};
use serde_json::{Value, json};

use super::describe::{layer_word, relation_text};
use super::generate::Scale;
use super::statistics::{Checked, Statistics};
use super::table::Application;
use crate::error::BenchError;
use crate::progress::Progress;
use crate::replay::{self, DirectIo, ReplayOutcome, ReplaySpec, Speed};
use crate::spec::Cache;
use crate::workload::{Measurement, Outcome, TextForm, Workload};

/// How block requests are issued; this does not affect system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRequests {
    /// Through the page cache if the source says that they are buffered, otherwise with direct I/O.
    AsStated,
    /// All with direct I/O.
    Direct,
}

/// The specification of an application run.
#[derive(Clone, Debug, PartialEq)]
pub struct AppSpec {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// The application to run.
    pub application: &'static Application,
    /// The fraction of the application to run.
    pub scale: Scale,
    /// The timing of the requests.
    pub speed: Speed,
    /// How block requests are issued.
    pub block_requests: BlockRequests,
    /// Page cache state when the window begins: `Cold` or `AsIs`.
    pub cache: Cache,
    /// Determines order, sizes, gaps, offsets and contents.
    pub seed: u64,
    /// Keeps the files after the run.
    pub keep_files: bool,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct AppOutcome {
    /// The specification of the run.
    pub spec: AppSpec,
    /// Statistics of the generated trace.
    pub generated: Statistics,
    /// The outcome of the replay.
    pub replay: ReplayOutcome,
}

impl AppSpec {
    fn is_buffered(&self) -> bool {
        let is_wanted =
            self.application.layer == Layer::SystemCalls || self.block_requests == BlockRequests::AsStated;
        self.application.buffered.value && is_wanted
    }
}

/// Generates the trace of an application and replays it.
///
/// # Errors
/// Those of [`Application::generate`] and of [`replay::run`].
pub fn run(spec: &AppSpec, progress: &dyn Progress, stop: &AtomicBool) -> Result<AppOutcome, BenchError> {
    let trace = spec.application.generate(spec.seed, spec.scale)?;
    let replay_spec = ReplaySpec {
        directory: spec.directory.clone(),
        speed: spec.speed,
        direct: if spec.is_buffered() {
            DirectIo::Never
        } else {
            DirectIo::AsTraced
        },
        cache: spec.cache,
        seed: spec.seed,
        keep_files: spec.keep_files,
    };
    Ok(AppOutcome {
        spec: spec.clone(),
        generated: Statistics::of(&trace),
        replay: replay::run(&trace, &replay_spec, progress, stop)?,
    })
}

impl AppOutcome {
    /// Human-readable summary: the request, and the source's claims beside the generated values.
    #[must_use]
    pub fn describe(&self) -> String {
        let application = self.spec.application;
        let mut text = format!(
            "{}: {}\n  layer: {} ({}), {}\n  scale {}: {} requests, {} bytes read, {} bytes written; {}\n",
            application.name,
            application.title,
            layer_word(application),
            application.layer.describe(),
            if self.spec.is_buffered() {
                "through the page cache"
            } else {
                "past the page cache"
            },
            nearest_f64(self.spec.scale.ppm) / 1e6,
            self.generated.requests(),
            self.generated.read_bytes,
            self.generated.written_bytes,
            self.replay.pace(),
        );
        let differing = self.checked().iter().filter(|checked| !checked.agrees).count();
        if differing > 0 {
            text.push_str(&format!(
                "  {differing} statements of the source are not met at this scale\n"
            ));
        }
        text
    }

    fn checked(&self) -> Vec<Checked> {
        self.spec.application.check(&self.generated, self.spec.scale)
    }
}

impl Measurement for AppOutcome {
    /// The outcome of the replay, with the application. Buffered block I/O is not a caveat if the application asks
    /// for it.
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let text = self.describe() + "\n";
        let claims: Vec<Value> = self.checked().iter().map(shown).collect();
        let application = self.spec.application;
        let is_buffered = self.spec.is_buffered();
        let mut replay = self.replay;
        if is_buffered {
            replay.left_out.remove(replay::BUFFERED);
        }
        let (notes, leftover) = (replay.notes(), replay.leftover.clone());
        let mut outcome = replay.outcome()?;
        outcome.notes = notes;
        outcome.leftover(leftover.as_ref());
        outcome.fact("kind", "application");
        outcome.fact("application", application.name);
        outcome.fact("title", application.title);
        outcome.fact("source", application.source);
        outcome.fact("scale", nearest_f64(self.spec.scale.ppm) / 1e6);
        outcome.fact("buffered", is_buffered);
        outcome.fact("claims", claims);
        outcome.text = text;
        outcome.text_form = TextForm::Table;
        Ok(outcome)
    }
}

impl Workload for AppSpec {
    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let spec = Self { seed, ..self.clone() };
        Ok(run(&spec, progress, stop)?.outcome()?)
    }
}

fn shown(checked: &Checked) -> Value {
    json!({
        "statistic": checked.claim.statistic.describe(),
        "stated": relation_text(&checked.claim),
        "expected_at_scale": checked.expected,
        "generated": checked.found,
        "agrees": checked.agrees,
    })
}
