//! The program `tidegate-ui`: serves the web page on loopback. `tidegate ui` runs it. It is a separate program because its
//! server is 40 crates that nothing else in `tidegate` needs.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser};
use programs::private_folder::private_folder;
use programs::ui_arguments::UiArguments;
use programs::user_files::{config_folder, history_file};
use programs::{Finding, command_line, output, parts};
use tempfile::TempDir;

/// Programs that open a file in the user's browser, on a desktop and on a phone.
const OPENERS: [&str; 2] = ["xdg-open", "termux-open"];

/// Measure any file system in a browser; also as `tidegate ui`.
#[derive(Debug, Parser)]
#[command(name = "tidegate-ui", bin_name = "tidegate ui", version, max_term_width = 100)]
struct Arguments {
    /// The arguments.
    #[command(flatten)]
    page: UiArguments,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let arguments: Arguments = command_line::parse_or_refuse(Arguments::command(), &words);
    programs::exit_code(run(&arguments.page))
}

fn run(arguments: &UiArguments) -> Result<Finding> {
    let settings = match &arguments.settings {
        Some(path) => path.clone(),
        None => config_folder()
            .context("there is no home folder for the settings; name a file with --settings")?
            .join("tidegate/ui.json"),
    };
    let options = ui::Options {
        listen: arguments.listen,
        program: parts::core()?,
        history: history_file(arguments.history.as_deref()),
        settings,
        directory: std::env::home_dir().unwrap_or_else(|| PathBuf::from("/")),
    };
    // Kept until the server ends, because the browser may read it late.
    let mut redirect = None;
    ui::serve(&options, |address| {
        // A closed standard output does not stop the server: the page may be open in a browser.
        let _ = output::print_line(address);
        if arguments.open {
            match open(address) {
                Ok(folder) => redirect = Some(folder),
                Err(error) => output::print_error(&format!("{error:#}; open the address yourself")),
            }
        }
    })?;
    drop(redirect);
    Ok(Finding::Nothing)
}

/// Opens the page through a redirect in a private file, because every user of the machine can see process arguments.
fn open(address: &str) -> Result<TempDir> {
    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let run = run
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(std::env::temp_dir);
    let folder = private_folder(&run, "tidegate-ui-")?;
    let page = folder.path().join("open.html");
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&page)?;
    file.write_all(redirect_page(address).as_bytes())?;
    match OPENERS.iter().any(|opener| start(opener, &page)) {
        true => Ok(folder),
        false => bail!("no browser could be opened"),
    }
}

fn redirect_page(address: &str) -> String {
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={address}\"><a href=\"{address}\">tidegate</a>\n"
    )
}

fn start(opener: &str, page: &Path) -> bool {
    let quiet = Stdio::null;
    let started = Command::new(opener)
        .arg(page)
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .spawn();
    // It may run as long as its browser, so a thread waits for it and reaps it.
    let reap = |mut opener: Child| thread::Builder::new().spawn(move || opener.wait());
    started.map(reap).is_ok()
}
