//! Handlers of the page's files, settings and runs; those of the history are in `stored.rs`.

mod stored;

use std::convert::Infallible;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::json;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};

use crate::places;
use crate::plan::{self, Preset};
use crate::respond::{json_of, refusal};
use crate::server::Shared;
use crate::settings::{JOURNALS, MODES, SYNCHRONOUS, Settings};

pub use self::stored::{
    history_compare, history_delete, history_export, history_list, history_run, history_tag,
};

const INDEX: &str = include_str!("../../assets/index.html");
const STYLE: &str = include_str!("../../assets/style.css");

/// The scripts; each is a separate module.
const SCRIPTS: [(&str, &str); 6] = [
    ("main.js", include_str!("../../assets/main.js")),
    ("dom.js", include_str!("../../assets/dom.js")),
    ("chart.js", include_str!("../../assets/chart.js")),
    ("measure.js", include_str!("../../assets/measure.js")),
    ("settings.js", include_str!("../../assets/settings.js")),
    ("history.js", include_str!("../../assets/history.js")),
];

const ICON: &str = include_str!("../../assets/icon.svg");

/// The page. Its links are relative to the folder named by the token.
pub async fn index() -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], INDEX).into_response()
}

/// Redirects to the path with a trailing slash.
pub async fn add_slash(uri: Uri) -> Redirect {
    Redirect::permanent(&format!("{}/", uri.path()))
}

/// The style sheet.
pub async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

/// The scripts and the icon.
pub async fn script(Path((_token, name)): Path<(String, String)>) -> Response {
    if name == "icon.svg" {
        return ([(header::CONTENT_TYPE, "image/svg+xml")], ICON).into_response();
    }
    match SCRIPTS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => {
            let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
            (kind, *text).into_response()
        }
        None => not_found().await,
    }
}

/// Response to any other path.
pub async fn not_found() -> Response {
    refusal(StatusCode::NOT_FOUND, "there is no such page")
}

/// The settings and the allowed values.
pub async fn settings(State(shared): State<Shared>) -> Response {
    match shared.settings.load() {
        Ok(settings) => json_of(&json!({
            "settings": settings,
            "choices": { "mode": MODES, "journal": JOURNALS, "synchronous": SYNCHRONOUS },
            "keeps_history": shared.history.is_some(),
        })),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Stores settings. A directory that can't be used for measurements is stored anyway, with a warning.
pub async fn save_settings(State(shared): State<Shared>, body: Bytes) -> Response {
    let settings: Settings = match serde_json::from_slice(&body) {
        Ok(settings) => settings,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    if let Some((field, reason)) = settings.problem() {
        return refusal(StatusCode::BAD_REQUEST, &format!("{field}: {reason}"));
    }
    match shared.settings.save(&settings) {
        Ok(()) => json_of(&json!({ "warning": places::place(&settings.directory).err() })),
        Err(error) => refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("the settings can't be written: {error}"),
        ),
    }
}

/// Possible directories for measurements.
pub async fn places() -> Response {
    json_of(&places::places())
}

/// A directory.
#[derive(Debug, Deserialize)]
pub struct DirectoryQuery {
    directory: String,
}

/// The properties of one directory.
pub async fn place(Query(query): Query<DirectoryQuery>) -> Response {
    match places::place(&query.directory) {
        Ok(place) => json_of(&place),
        Err(reason) => refusal(StatusCode::BAD_REQUEST, &reason),
    }
}

/// Preset of the run.
#[derive(Debug, Deserialize)]
pub struct StartRequest {
    preset: Preset,
    directory: String,
}

/// Starts a run.
pub async fn start(State(shared): State<Shared>, body: Bytes) -> Response {
    let request: StartRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let mut settings = match shared.settings.load() {
        Ok(settings) => settings,
        Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    settings.directory = request.directory;
    let place = match places::place(&settings.directory) {
        Ok(place) => place,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, &reason),
    };
    let steps = plan::steps(request.preset, &settings);
    if steps.is_empty() {
        return refusal(
            StatusCode::BAD_REQUEST,
            "Custom has no steps: choose some under Settings",
        );
    }
    let needed = plan::bytes_needed(&steps, &settings);
    if needed >= place.free_bytes {
        let reason = format!(
            "{} has {} MiB free, and the files would take {} MiB",
            settings.directory,
            place.free_bytes >> 20,
            needed >> 20
        );
        return refusal(StatusCode::BAD_REQUEST, &reason);
    }
    if shared.runner.start(request.preset, &settings, &steps) {
        json_of(&json!({}))
    } else {
        refusal(StatusCode::CONFLICT, "a run is under way: stop it first")
    }
}

/// Stops the run.
pub async fn stop(State(shared): State<Shared>) -> Response {
    if shared.runner.stop() {
        json_of(&json!({}))
    } else {
        refusal(StatusCode::CONFLICT, "no run is under way")
    }
}

/// Streams the state of the run at every change.
pub async fn events(State(shared): State<Shared>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let states = WatchStream::new(shared.runner.watch());
    let events = states.map(|state| {
        let text = serde_json::to_string(&state).unwrap_or_else(|_| "null".to_owned());
        Ok(Event::default().data(text))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
