//! The arguments of `tidegate-ui`. `tidegate ui` accepts the same and passes them on.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

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
