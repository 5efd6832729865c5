//! `tidegate ui`: serves the web page on loopback.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;
use tempfile::TempDir;

use crate::history_command::location::{config_folder, location};
use crate::private_folder::private_folder;
use crate::{Finding, output};

/// Programs that open a file in the user's browser, on a desktop and on a phone.
const OPENERS: [&str; 2] = ["xdg-open", "termux-open"];

/// Arguments of `tidegate ui`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the address of the page. It holds a secret: everyone who knows it may write files here. \
                  --open gives the browser a file with that address, which only its user can read. From another \
                  machine: ssh -L 8080:127.0.0.1:PORT, and open the same path on localhost:8080. Ctrl-C stops a \
                  run, waits until its files are removed, and ends the server."
)]
pub struct UiArguments {
    /// Loopback address and port; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Open the page in the browser
    #[arg(long)]
    pub open: bool,
    /// File of the settings [default: tidegate/ui.json in $XDG_CONFIG_HOME]
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// File of the history [default: $TIDEGATE_HISTORY, or tidegate/history.db in $XDG_DATA_HOME]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &UiArguments) -> Result<Finding> {
    let settings = match &arguments.settings {
        Some(path) => path.clone(),
        None => config_folder()
            .context("there is no home folder for the settings; name a file with --settings")?
            .join("tidegate/ui.json"),
    };
    let options = ui::Options {
        listen: arguments.listen,
        program: std::env::current_exe().context("this program can't be found")?,
        history: location(arguments.history.as_deref()),
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
