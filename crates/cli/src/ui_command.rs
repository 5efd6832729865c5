//! `tidegate ui`: the web page, on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;

use crate::history_command::location::{config_folder, location};
use crate::{Finding, output};

/// Programs that open an address in the user's browser: on a desktop, and on a phone.
const OPENERS: [&str; 2] = ["xdg-open", "termux-open-url"];

/// Arguments of `tidegate ui`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the address of the page, which holds a secret: whoever has it may write files here.\n\
                  From another machine: ssh -L 8080:127.0.0.1:PORT, and open the same path on localhost:8080.\n\
                  Ctrl-C stops a run, waits until its files are removed, and ends the server."
)]
pub struct UiArguments {
    /// A loopback address and a port; port 0 takes a free one
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
    ui::serve(&options, |address| {
        // Nobody reads standard output: the page is served all the same, to whoever the browser was opened for.
        let _ = output::print_line(address);
        if arguments.open && !open(address) {
            output::print_error("no browser could be opened; open the address yourself");
        }
    })?;
    Ok(Finding::Nothing)
}

fn open(address: &str) -> bool {
    OPENERS.iter().any(|opener| {
        let quiet = Stdio::null;
        let started = Command::new(opener)
            .arg(address)
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .spawn();
        started.is_ok()
    })
}
