//! Handlers of the history.

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use history::{Filter, History, HistoryError, RunId, StoredRun};
use results::{RecordComparison, noise_by_workload, target_title};
use serde::Deserialize;
use serde_json::json;

use crate::respond::{json_of, refusal};
use crate::rows::result_rows;
use crate::server::Shared;

/// Maximum number of runs in a list.
const LIST_MAX: u32 = 500;

/// Filter of a list.
#[derive(Debug, Deserialize)]
pub struct ListQuery {
    #[serde(default)]
    workload: String,
    #[serde(default)]
    tag: String,
}

/// One run.
#[derive(Debug, Deserialize)]
pub struct RunQuery {
    id: i64,
}

/// Two runs.
#[derive(Debug, Deserialize)]
pub struct CompareQuery {
    a: i64,
    b: i64,
}

/// Comma-separated run ids, and a format.
#[derive(Debug, Deserialize)]
pub struct ExportQuery {
    ids: String,
    format: String,
}

/// A run and its new tag.
#[derive(Debug, Deserialize)]
pub struct TagQuery {
    id: i64,
    tag: String,
    #[serde(default)]
    remove: bool,
}

/// The latest runs.
pub async fn history_list(State(shared): State<Shared>, Query(query): Query<ListQuery>) -> Response {
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let filter = Filter {
        workload: given(query.workload),
        tag: given(query.tag),
        limit: Some(LIST_MAX),
        ..Filter::default()
    };
    with_history(shared, move |history| match history {
        Some(history) => Ok(json_of(&history.list(&filter)?)),
        None => Ok(json_of(&json!([]))),
    })
    .await
}

/// One run with its rows.
pub async fn history_run(State(shared): State<Shared>, Query(query): Query<RunQuery>) -> Response {
    with_existing(shared, move |history| {
        let run = history.get(RunId(query.id))?;
        let first = run.records.first();
        Ok(json_of(&json!({
            "summary": run.summary,
            "rows": result_rows(&run.records),
            "target": first.map(|record| target_title(&record.target)),
            "host": first.map(|record| &record.host),
            "noise": noise_by_workload(&run.records),
        })))
    })
    .await
}

/// Deletes a run.
pub async fn history_delete(State(shared): State<Shared>, Query(query): Query<RunQuery>) -> Response {
    with_existing(shared, move |history| {
        history.delete(RunId(query.id))?;
        Ok(json_of(&json!({})))
    })
    .await
}

/// Tags a run, or removes its tag.
pub async fn history_tag(State(shared): State<Shared>, Query(query): Query<TagQuery>) -> Response {
    with_existing(shared, move |history| {
        if query.remove {
            history.untag(RunId(query.id), &query.tag)?;
        } else {
            history.tag(RunId(query.id), &query.tag)?;
        }
        Ok(json_of(&json!({})))
    })
    .await
}

/// Two runs side by side.
pub async fn history_compare(State(shared): State<Shared>, Query(query): Query<CompareQuery>) -> Response {
    with_existing(shared, move |history| {
        let (a, b) = (history.get(RunId(query.a))?, history.get(RunId(query.b))?);
        Ok(match RecordComparison::of(&a.records, &b.records) {
            Ok(comparison) => json_of(&json!({ "a": a.summary, "b": b.summary, "comparison": comparison })),
            Err(error) => refusal(StatusCode::CONFLICT, &error.to_string()),
        })
    })
    .await
}

/// Runs as a file to download.
pub async fn history_export(State(shared): State<Shared>, Query(query): Query<ExportQuery>) -> Response {
    let Ok(ids) = query
        .ids
        .split(',')
        .map(str::parse)
        .collect::<Result<Vec<RunId>, _>>()
    else {
        return refusal(StatusCode::BAD_REQUEST, "no ids to export");
    };
    with_existing(shared, move |history| {
        let runs: Vec<StoredRun> = ids.iter().map(|id| history.get(*id)).collect::<Result<_, _>>()?;
        let (text, kind, name) = match query.format.as_str() {
            "csv" => (history::csv(&runs), "text/csv", "runs.csv"),
            "json" => (history::json_lines(&runs), "application/jsonl", "runs.jsonl"),
            "markdown" => (history::markdown(&runs), "text/markdown", "runs.md"),
            other => {
                let reason = format!("`{other}` is none of csv, json, markdown");
                return Ok(refusal(StatusCode::BAD_REQUEST, &reason));
            }
        };
        let headers = [
            (header::CONTENT_TYPE, format!("{kind}; charset=utf-8")),
            (
                header::CONTENT_DISPOSITION,
                format!("attachment; filename=\"tidegate-{name}\""),
            ),
        ];
        Ok((headers, text).into_response())
    })
    .await
}

async fn with_existing(
    shared: Shared,
    work: impl FnOnce(&mut History) -> Result<Response, HistoryError> + Send + 'static,
) -> Response {
    with_history(shared, |history| match history {
        Some(history) => work(history),
        None => Ok(refusal(StatusCode::NOT_FOUND, "no run is stored yet")),
    })
    .await
}

/// Opens the history on a thread that may block on the disk; `None` if it does not exist yet.
async fn with_history(
    shared: Shared,
    work: impl FnOnce(Option<&mut History>) -> Result<Response, HistoryError> + Send + 'static,
) -> Response {
    let done = tokio::task::spawn_blocking(move || {
        let mut history = match &shared.history {
            Some(path) => History::open_existing(path)?,
            None => None,
        };
        work(history.as_mut())
    })
    .await;
    match done {
        Ok(Ok(response)) => response,
        Ok(Err(error @ HistoryError::NoSuchRun { .. })) => refusal(StatusCode::NOT_FOUND, &error.to_string()),
        Ok(Err(error @ HistoryError::BadTag { .. })) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
        Ok(Err(error)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
