//! The server's answers to all kinds of clients, and its leftover files and processes.

use std::process::Command;

use crate::server::{Server, count};

#[test]
fn only_loopback_is_served() {
    for address in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["ui", "--settings", "/nowhere/ui.json", "--listen", address])
            .output()
            .expect("the binary runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("not a loopback address"), "{message}");
    }
}

#[test]
fn nothing_is_answered_without_the_token_or_to_another_name() {
    let server = Server::start();
    let (host, token) = server.parts();
    let status = |path: &str, headers: &[(&str, &str)]| server.raw("GET", path, headers, "").status;
    assert_eq!(status(&token, &[("Host", &host)]), 200);
    let wrong = format!("/{}/", "0".repeat(token.len() - 2));
    for path in [
        "/",
        "/api/settings",
        "//api/settings",
        &wrong,
        "/favicon.ico",
        &token[1..2],
    ] {
        let answer = server.raw("GET", path, &[("Host", &host)], "");
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(!answer.body.contains("directory"), "{}", answer.body);
    }
    assert_eq!(status(&token, &[("Host", "evil.example")]), 403);
    assert_eq!(
        status(&token, &[("Host", &host), ("Origin", "http://evil.example")]),
        403
    );
    let started = server.raw(
        "POST",
        &format!("{token}api/run"),
        &[("Host", &host), ("Origin", "null")],
        "{\"preset\":\"file\",\"directory\":\"/\"}",
    );
    assert_eq!(started.status, 403);
}

#[test]
fn every_answer_keeps_other_sites_out() {
    let server = Server::start();
    for path in ["", "main.js", "style.css", "icon.svg", "api/settings", "nothing"] {
        let answer = server.ask("GET", path, "");
        for header in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(header), "{path}: {}", answer.head);
        }
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
    }
    let page = server.ask("GET", "", "").body;
    for outside in ["http://", "https://", "style=", "onclick"] {
        assert!(!page.contains(outside), "the page has {outside}");
    }
}

#[test]
fn a_run_is_followed_to_its_end_and_stored_as_one() {
    let server = Server::start();
    let body = serde_json::json!({"preset": "all", "directory": server.data()}).to_string();
    assert_eq!(server.ask("POST", "api/run", &body).status, 200);
    let second = server.ask("POST", "api/run", &body);
    assert!(second.status == 409 || server.follow(|_| true)["status"] != "running");
    let state = server.follow(|state| state["status"] != "running");
    assert_eq!(state["status"], "done", "{state}");
    assert_eq!(state["steps"].as_array().expect("steps").len(), 7);
    for step in state["steps"].as_array().expect("steps") {
        assert!(
            step["rows"][0]["per_s"]["value"].as_f64().expect("a rate") > 0.0,
            "{step}"
        );
    }
    assert_eq!(state["fraction"], 1.0);
    let runs: serde_json::Value =
        serde_json::from_str(&server.ask("GET", "api/history", "").body).expect("JSON");
    assert_eq!(runs.as_array().expect("runs").len(), 1);
    assert_eq!(
        (&runs[0]["id"], &runs[0]["workloads_count"]),
        (&state["history_id"], &7.into())
    );
    assert_eq!(server.files_in_data(), 0);
}

#[test]
fn rounds_run_all_steps_each_and_rows_are_of_all_of_them() {
    let server = Server::start();
    let settings = serde_json::json!({
        "directory": server.data(), "rounds": 2, "transactions": 3, "write_mib": 1,
        "custom": ["sequential-write", "insert"],
    });
    assert_eq!(
        server.ask("PUT", "api/settings", &settings.to_string()).status,
        200
    );
    let body = serde_json::json!({"preset": "custom", "directory": server.data()}).to_string();
    assert_eq!(server.ask("POST", "api/run", &body).status, 200);
    let state = server.follow(|state| state["status"] != "running");
    let steps = state["steps"].as_array().expect("steps");
    for step in steps {
        assert_eq!(
            (&step["rows"][0]["runs"], &step["status"]),
            (&2.into(), &"done".into()),
            "{step}"
        );
    }
    assert_eq!(steps.len(), 2);
}

#[test]
fn a_stop_keeps_partial_results_and_leaves_no_files() {
    let server = Server::start();
    slow(&server);
    let stopped = server.ask("POST", "api/stop", "");
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    let state = server.follow(|state| state["status"] != "running");
    assert_eq!(state["status"], "stopped", "{state}");
    assert_eq!(server.files_in_data(), 0);
    assert_eq!(server.ask("POST", "api/stop", "").status, 409);
}

#[test]
fn the_servers_end_stops_the_run_and_leaves_no_files() {
    let mut server = Server::start();
    slow(&server);
    let output = server.interrupt();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(server.files_in_data(), 0);
}

/// Starts a run of several minutes, and waits until it measures.
fn slow(server: &Server) {
    let settings = serde_json::json!({
        "directory": server.data(), "write_mib": 64, "record_kib": 4, "mode": "fsync", "custom": ["random-write"],
    });
    let saved = server.ask("PUT", "api/settings", &settings.to_string());
    assert_eq!(saved.status, 200, "{}", saved.body);
    let body = serde_json::json!({"preset": "custom", "directory": server.data()}).to_string();
    assert_eq!(server.ask("POST", "api/run", &body).status, 200);
    server.follow(|state| state["phase"] == "measure");
    assert!(server.files_in_data() > 0, "nothing is being measured");
}

#[test]
fn impossible_measurements_are_refused_with_a_sentence() {
    let server = Server::start();
    let run = |preset: &str, directory: &str| {
        let body = serde_json::json!({"preset": preset, "directory": directory}).to_string();
        server.ask("POST", "api/run", &body)
    };
    for (directory, word) in [
        ("/nowhere", "/nowhere"),
        ("relative", "absolute"),
        ("/proc/version", "not a folder"),
    ] {
        let answer = run("file", directory);
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains(word), "{}", answer.body);
    }
    assert_eq!(run("turbo", "/tmp").status, 400);
    for (settings, word) in [
        ("{\"threads\":0}", "threads"),
        ("{\"record_kib\":3}", "whole number"),
        ("{\"mode\":\"--help\"}", "mode"),
        ("{", "EOF"),
    ] {
        let answer = server.ask("PUT", "api/settings", settings);
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains(word), "{}", answer.body);
    }
    assert_eq!(count(&server.data()), 0);
}

#[test]
fn a_broken_history_is_a_sentence_and_the_page_stays() {
    let server = Server::start();
    std::fs::write(
        server.file("history.db"),
        "no database, and a line that is long enough for a header ".repeat(9),
    )
    .expect("written");
    let answer = server.ask("GET", "api/history", "");
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("no SQLite database"), "{}", answer.body);
    assert_eq!(server.ask("GET", "", "").status, 200);
}
