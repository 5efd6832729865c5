//! Responses: JSON, and errors as JSON with one sentence.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

/// A value as a JSON response.
pub fn json_of(value: &impl Serialize) -> Response {
    with_status(StatusCode::OK, value)
}

/// An error response with the reason in one sentence.
pub fn refusal(status: StatusCode, reason: &str) -> Response {
    with_status(status, &json!({ "error": reason }))
}

fn with_status(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
