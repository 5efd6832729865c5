//! Runs a generated application with the replayer, and says in the record what it was.

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

/// How block requests are made; system calls are made as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRequests {
    /// Through the page cache where the source says that they are buffered, past it otherwise.
    AsStated,
    /// Past the page cache, all of them.
    Direct,
}

/// A run of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct AppSpec {
    /// An existing directory; the run makes one of its own inside.
    pub directory: PathBuf,
    /// Which application.
    pub application: &'static Application,
    /// How much of it.
    pub scale: Scale,
    /// When requests are made.
    pub speed: Speed,
    /// How block requests are made.
    pub block_requests: BlockRequests,
    /// Page cache when the window begins: `Cold` or `AsIs`.
    pub cache: Cache,
    /// Decides order, sizes, gaps and places, and the contents.
    pub seed: u64,
    /// Leaves the files where they are.
    pub keep_files: bool,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq)]
pub struct AppOutcome {
    /// The run.
    pub spec: AppSpec,
    /// What was generated.
    pub generated: Statistics,
    /// What the replay did.
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
    /// What was asked for and what the source states, for people.
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
    /// The outcome of the replay, with the application that was replayed. Buffered block I/O is no note where the
    /// application asks for it.
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
