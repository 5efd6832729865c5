//! Command line for the lab guest, called by `lab/run`, `lab/start`, `lab/job` and `lab/stop`. Usage:
//! `docs/reference/lab.md`.
//!
//! Its exit code is the script's; 124 after a timeout, 125 if the lab itself failed, 126 if the power was cut or the
//! guest ended itself.
#![expect(clippy::print_stderr, reason = "a program for the terminal")]

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use testkit::lab::{Ended, FlashFile, Folders, Guest, Job, Lab, Options, Outcome};

const USAGE: &str = "\
usage: lab/run   FOLDER [OPTION...]     boot, run FOLDER/run.sh as root with FOLDER as /host, end the guest
       lab/start FOLDER [OPTION...]     boot a guest that stays
       lab/job   FOLDER NAME [OPTION...]   run FOLDER/NAME/run.sh in it, with FOLDER/NAME as /host
       lab/stop  FOLDER                 end it

What the script prints goes to standard output and console.log in its folder; its exit code is passed on.

of a guest (run, start):
  --memory MIB           memory (1024)
  --processors N         processors (2)
  --flash FILE           a NAND chip for the module tidegate_flash, whose bytes are this file (may be repeated)
  --drive FILE           a raw disk image as /dev/vda, /dev/vdb ... (may be repeated)
of a job (run, job):
  --script FILE          run this in place of run.sh; a bare name is one of lab/jobs
  --env NAME=VALUE       set a variable of the script (may be repeated)
  --timeout SECONDS      end the guest after this time (300)
  --kill-on TEXT         cut the power when the script has printed this
  --kill-delay SECONDS   that much later (0)";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(125)
        }
    }
}

fn run(arguments: &[String]) -> Result<u8, String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["run", folder, ref options @ ..] => run_once(Path::new(folder), &Settings::parse(options)?),
        ["start", folder, ref options @ ..] => {
            let settings = Settings::parse(options)?;
            let lab = Lab::available().map_err(text)?;
            let booted = lab.boot_resident(&settings.guest, Path::new(folder));
            booted.map(|()| 0).map_err(text)
        }
        ["job", folder, name, ref options @ ..] => {
            let settings = Settings::parse(options)?;
            let job_folder = Path::new(folder).join(name);
            let job = settings.job(&job_folder)?;
            let mut guest = Guest::resident(Path::new(folder), name).map_err(text)?;
            let outcome = guest.run(&job).map_err(text)?;
            finish(&job_folder, &outcome, "", settings.timeout)
        }
        ["stop", folder] => {
            Guest::resident(Path::new(folder), ".").map_err(text)?.kill();
            Ok(0)
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn run_once(folder: &Path, settings: &Settings) -> Result<u8, String> {
    let job = settings.job(folder)?;
    let lab = Lab::available().map_err(text)?;
    let options = Options {
        folders: Folders::One(folder.to_owned()),
        ..settings.guest.clone()
    };
    let mut guest = lab.boot(&options).map_err(text)?;
    let outcome = guest.run(&job).map_err(text)?;
    finish(folder, &outcome, &guest.kernel_log(), settings.timeout)
}

/// Writes the log and the output, and returns the exit code.
fn finish(folder: &Path, outcome: &Outcome, kernel_log: &str, timeout: Duration) -> Result<u8, String> {
    let log = folder.join("console.log");
    fs::write(&log, [outcome.output.as_slice(), kernel_log.as_bytes()].concat())
        .map_err(|error| format!("{}: {error}", log.display()))?;
    io::stdout().write_all(&outcome.output).map_err(text)?;
    Ok(match outcome.ended {
        Ended::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Ended::TimedOut => {
            eprintln!("lab: the job was not done after {} s", timeout.as_secs_f64());
            124
        }
        Ended::Cut | Ended::GuestEnded => 126,
    })
}

/// Parsed options.
struct Settings {
    guest: Options,
    script: Option<PathBuf>,
    variables: Vec<(String, String)>,
    timeout: Duration,
    kill_on: Option<String>,
    kill_delay: Duration,
}

impl Settings {
    fn parse(options: &[&str]) -> Result<Self, String> {
        let mut settings = Self {
            guest: Options::default(),
            script: None,
            variables: Vec::new(),
            timeout: Duration::from_secs(300),
            kill_on: None,
            kill_delay: Duration::ZERO,
        };
        for pair in options.chunks(2) {
            let [option, value] = *pair else {
                return Err(format!("{} needs a value\n\n{USAGE}", pair[0]));
            };
            settings.set(option, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "--timeout" => self.timeout = seconds(option, value)?,
            "--memory" => self.guest.memory_mib = number(option, value)?,
            "--processors" => self.guest.processors = number(option, value)?,
            "--kill-on" => self.kill_on = Some(value.to_owned()),
            "--kill-delay" => self.kill_delay = seconds(option, value)?,
            "--drive" => self.guest.drives.push(PathBuf::from(value)),
            "--flash" => self
                .guest
                .flash
                .push(FlashFile::existing(Path::new(value)).map_err(text)?),
            "--script" => self.script = Some(PathBuf::from(value)),
            "--env" => {
                let (name, value) = value
                    .split_once('=')
                    .ok_or_else(|| format!("--env {value}: expected NAME=VALUE"))?;
                self.variables.push((name.to_owned(), value.to_owned()));
            }
            _ => return Err(format!("unknown option {option}\n\n{USAGE}")),
        }
        Ok(())
    }

    fn job(&self, folder: &Path) -> Result<Job, String> {
        let mut job = match &self.script {
            Some(name) if name.components().count() == 1 && !name.exists() => {
                Job::ready_made(&name.to_string_lossy()).map_err(text)?
            }
            path => {
                let path = path.clone().unwrap_or_else(|| folder.join("run.sh"));
                Job::new(fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?)
            }
        }
        .timeout(self.timeout);
        for (name, value) in &self.variables {
            job = job.variable(name, value);
        }
        if let Some(text) = &self.kill_on {
            job = job.cut_after(text.as_bytes(), self.kill_delay);
        }
        Ok(job)
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

fn text(error: impl ToString) -> String {
    error.to_string()
}
