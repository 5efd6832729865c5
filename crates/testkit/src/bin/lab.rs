//! The lab guest by hand; `lab/run` and its neighbours call it. How to use it: `docs/lab.md`.
//!
//! Its exit code is the script's; 124 after a timeout, 125 when the lab itself failed, 126 when the power was cut or the
//! guest ended itself.
#![expect(clippy::print_stderr, reason = "a program for the terminal")]

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use testkit::lab::{Ended, FlashFile, Job, Lab, Options};

const USAGE: &str = "\
usage: lab/run FOLDER [OPTION...]

Boots the guest with FOLDER as its /host, runs FOLDER/run.sh there as root, and ends it. What the script prints goes to
standard output and FOLDER/console.log; its exit code is passed on.

  --timeout SECONDS      end the guest after this time (120)
  --memory MIB           memory of the guest (1024)
  --processors N         processors of the guest (2)
  --env NAME=VALUE       set a variable of the script
  --flash FILE           a NAND chip for the module tidegate_flash, whose bytes are this file (may be repeated)
  --drive FILE           a raw disk image as /dev/vda, /dev/vdb ... (may be repeated)
  --kill-on TEXT         cut the power when the script has printed this
  --kill-delay SECONDS   that much later (0)
  --script FILE          run this in place of FOLDER/run.sh; a bare name is one of lab/jobs";

fn main() -> ExitCode {
    match run(env::args().skip(1).collect()) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(125)
        }
    }
}

fn run(arguments: Vec<String>) -> Result<u8, String> {
    let mut arguments = arguments.into_iter();
    let folder = match arguments.next() {
        Some(folder) if !folder.starts_with('-') => PathBuf::from(folder),
        _ => return Err(USAGE.to_owned()),
    };
    let mut options = Options {
        folder: Some(folder.clone()),
        ..Options::default()
    };
    let (mut timeout, mut kill_on, mut kill_delay) = (Duration::from_secs(120), None, Duration::ZERO);
    let (mut variables, mut script) = (Vec::new(), folder.join("run.sh"));
    while let Some(option) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{option} needs a value\n\n{USAGE}"))?;
        match option.as_str() {
            "--timeout" => timeout = seconds(&option, &value)?,
            "--memory" => options.memory_mib = number(&option, &value)?,
            "--processors" => options.processors = number(&option, &value)?,
            "--kill-on" => kill_on = Some(value),
            "--kill-delay" => kill_delay = seconds(&option, &value)?,
            "--drive" => options.drives.push(PathBuf::from(value)),
            "--flash" => {
                let flash = FlashFile::existing(Path::new(&value)).map_err(|error| error.to_string())?;
                options.flash.push(flash);
            }
            "--script" => script = script_path(&value),
            "--env" => {
                let (name, value) = value
                    .split_once('=')
                    .ok_or_else(|| format!("--env {value}: expected NAME=VALUE"))?;
                variables.push((name.to_owned(), value.to_owned()));
            }
            _ => return Err(format!("unknown option {option}\n\n{USAGE}")),
        }
    }
    let text = fs::read_to_string(&script).map_err(|error| format!("{}: {error}", script.display()))?;
    let mut job = Job::new(text).timeout(timeout);
    for (name, value) in variables {
        job = job.variable(name, value);
    }
    if let Some(text) = kill_on {
        job = job.cut_after(text, kill_delay);
    }
    let lab = Lab::available().map_err(|why| why.to_string())?;
    let mut guest = lab.boot(&options).map_err(|error| error.to_string())?;
    let outcome = guest.run(&job).map_err(|error| error.to_string())?;
    let log = folder.join("console.log");
    fs::write(
        &log,
        [outcome.output.as_slice(), guest.kernel_log().as_bytes()].concat(),
    )
    .map_err(|error| format!("{}: {error}", log.display()))?;
    io::stdout()
        .write_all(&outcome.output)
        .map_err(|error| error.to_string())?;
    Ok(match outcome.ended {
        Ended::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Ended::TimedOut => {
            eprintln!("lab: the job was not done after {} s", timeout.as_secs_f64());
            124
        }
        Ended::Cut | Ended::GuestEnded => 126,
    })
}

/// A path, or a bare name of a ready-made script.
fn script_path(value: &str) -> PathBuf {
    let ready_made = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../lab/jobs")
        .join(value);
    if !value.contains('/') && ready_made.exists() {
        ready_made
    } else {
        PathBuf::from(value)
    }
}

fn seconds(option: &str, value: &str) -> Result<Duration, String> {
    let seconds = value
        .parse()
        .ok()
        .and_then(|value| Duration::try_from_secs_f64(value).ok());
    seconds.ok_or_else(|| format!("{option} {value}: expected seconds"))
}

fn number(option: &str, value: &str) -> Result<u32, String> {
    value
        .parse()
        .map_err(|_| format!("{option} {value}: expected a number"))
}
