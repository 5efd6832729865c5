//! The server: address, shared state, routes, shutdown.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::UiError;
use crate::guard::{Token, guard};
use crate::pages;
use crate::runner::Runner;
use crate::settings::SettingsFile;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// A loopback address; port 0 picks a free port.
    pub listen: SocketAddr,
    /// The program that measures: `tidegate`.
    pub program: PathBuf,
    /// File of the history; `None` disables the history.
    pub history: Option<PathBuf>,
    /// File of the settings.
    pub settings: PathBuf,
    /// Directory to measure in if the settings name none.
    pub directory: PathBuf,
}

/// State shared by all handlers.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Starts and stops runs.
    pub runner: Runner,
    /// The settings.
    pub settings: Arc<SettingsFile>,
    /// File of the history.
    pub history: Option<PathBuf>,
}

/// Serves until SIGINT, SIGTERM or SIGHUP, then stops the current run and waits for its end. Calls `ready` with the
/// address of the page.
///
/// # Errors
/// If the address is not loopback or can't be bound, or the settings can't be read.
pub fn serve(options: &Options, ready: impl FnOnce(&str)) -> Result<(), UiError> {
    if !options.listen.ip().is_loopback() {
        return Err(UiError::NotLoopback {
            address: options.listen,
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| UiError::Serve { source })?;
    let served = runtime.block_on(serve_until_signal(options, ready));
    // Drops pending responses to slow readers.
    runtime.shutdown_background();
    served
}

async fn serve_until_signal(options: &Options, ready: impl FnOnce(&str)) -> Result<(), UiError> {
    let settings = SettingsFile::new(options.settings.clone(), &options.directory);
    settings.load()?;
    let token = Token::random().map_err(|source| UiError::Token { source })?;
    let shared = Shared {
        runner: Runner::new(options.program.clone(), options.history.clone()),
        settings: Arc::new(settings),
        history: options.history.clone(),
    };
    let mut signals = Signals::catch().map_err(|source| UiError::Serve { source })?;
    let listening = |source| UiError::Listen {
        address: options.listen,
        source,
    };
    let listener = TcpListener::bind(options.listen).await.map_err(listening)?;
    let address = listener.local_addr().map_err(listening)?;
    let runner = shared.runner.clone();
    let app = routes(shared, token.clone());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    ready(&format!("http://{address}/{}/", token.text()));
    signals.next().await;
    // Reports the end of the run to the page before the server exits. A second signal skips the wait.
    tokio::select! {
        () = runner.shut_down() => {}
        () = signals.next() => {}
    }
    server.abort();
    Ok(())
}

/// The signals that end the server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

fn routes(shared: Shared, token: Token) -> Router {
    let path = |rest: &str| format!("/{{token}}/{rest}");
    Router::new()
        .route("/{token}", get(pages::add_slash))
        .route(&path(""), get(pages::index))
        .route(&path("style.css"), get(pages::style))
        .route(&path("{script}"), get(pages::script))
        .route(
            &path("api/settings"),
            get(pages::settings).put(pages::save_settings),
        )
        .route(&path("api/places"), get(pages::places))
        .route(&path("api/place"), get(pages::place))
        .route(&path("api/events"), get(pages::events))
        .route(&path("api/run"), post(pages::start))
        .route(&path("api/stop"), post(pages::stop))
        .route(&path("api/history"), get(pages::history_list))
        .route(&path("api/history/run"), get(pages::history_run))
        .route(&path("api/history/run"), delete(pages::history_delete))
        .route(&path("api/history/tag"), post(pages::history_tag))
        .route(&path("api/history/compare"), get(pages::history_compare))
        .route(&path("api/history/export"), get(pages::history_export))
        .fallback(pages::not_found)
        .layer(from_fn_with_state(token, guard))
        .with_state(shared)
}
