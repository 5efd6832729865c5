//! The page in a browser: keyboard only, roles, phone size, light and dark.

use serde_json::json;

use crate::browser::Browser;
use crate::server::Server;

/// Opens the page; `None` without a browser.
fn opened() -> Option<(Server, Browser)> {
    let mut browser = Browser::start()?;
    let server = Server::start();
    browser.resize(1100, 900);
    browser.theme("light");
    browser.open(&server.address);
    Some((server, browser))
}

/// Starts a run by its button and waits until the history has it under this number.
fn run(browser: &mut Browser, preset: &str, number: u32) {
    browser.value(&format!(
        "document.querySelector('[data-preset={preset}]').click()"
    ));
    browser.wait(&format!(
        "document.getElementById('phase').textContent.includes('run {number} of the history')"
    ));
    assert_eq!(
        browser.value("document.getElementById('run').dataset.status"),
        "done"
    );
}

fn select_tab(browser: &mut Browser, name: &str) {
    browser.value(&format!("document.getElementById('tab-{name}').click()"));
    browser.wait(&format!("!document.getElementById('panel-{name}').hidden"));
    if name == "history" {
        browser.wait("document.getElementById('runs').children.length > 0");
    }
}

#[test]
fn everything_can_be_done_by_keyboard_alone() {
    let Some((server, mut browser)) = opened() else {
        return;
    };
    // Run Custom twice: focus its button and press it by keyboard.
    for number in 1..=2 {
        browser.tab_to("[data-preset=custom]");
        browser.key("Enter");
        browser.wait(&format!(
            "document.getElementById('phase').textContent.includes('run {number} of the history')"
        ));
        assert_eq!(
            browser.value("document.getElementById('run').dataset.status"),
            "done"
        );
        browser.wait("!document.querySelector('[data-preset=custom]').disabled");
    }
    assert_eq!(
        browser.value("document.querySelectorAll('#cards button').length"),
        2
    );
    assert_eq!(
        browser.value("document.getElementById('progress').getAttribute('aria-valuenow')"),
        "100"
    );
    // Tabs: the arrow keys wrap around, Home and End go to the ends.
    browser.value("document.activeElement.blur()");
    browser.tab_to("[role=tab]");
    let chosen = "document.querySelector('[role=tab][aria-selected=true]').textContent";
    for (key, tab) in [
        ("ArrowLeft", "History"),
        ("ArrowRight", "Measure"),
        ("ArrowRight", "Settings"),
        ("End", "History"),
        ("Home", "Measure"),
        ("End", "History"),
    ] {
        browser.key(key);
        assert_eq!(browser.value(chosen), tab);
        assert_eq!(browser.value("document.activeElement.textContent"), tab);
    }
    // History: select both runs, compare them, show one, tag it, and delete after confirmation.
    browser.wait("document.querySelectorAll('#runs tbody tr').length === 2");
    browser.tab_to("[aria-label='Select run 2']");
    browser.key(" ");
    browser.tab_to("[aria-label='Select run 1']");
    browser.key(" ");
    browser.value("document.getElementById('tab-history').focus()");
    browser.tab_to("#compare");
    browser.key("Enter");
    browser.wait("document.querySelector('#detail h2').textContent === 'Run 2 (B) against run 1 (A)'");
    let verdict = browser.value("document.querySelector('#detail .verdict').textContent");
    assert_eq!(verdict, "too few runs to tell", "one run each tells nothing");
    browser.value("document.getElementById('tab-history').focus()");
    browser.tab_to("#runs button.link");
    browser.key("Enter");
    browser.wait("document.querySelector('#detail h2').textContent === 'Run 2'");
    browser.tab_to("#new-tag");
    browser.call("Input.insertText", json!({"text": "kept"}));
    browser.key("Enter");
    browser.wait("document.querySelector('#runs').textContent.includes('kept')");
    browser.value("document.getElementById('tab-history').focus()");
    browser.tab_to("#remove");
    browser.key("Enter");
    browser.wait("document.getElementById('confirm').open");
    browser.tab_to("#confirm-yes");
    browser.key("Enter");
    browser.wait("document.querySelector('#runs .empty')");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(server.files_in_data(), 0);
}

#[test]
fn a_run_shows_progress_and_can_be_stopped() {
    let Some((server, mut browser)) = opened() else {
        return;
    };
    let settings = json!({
        "directory": server.data(), "write_mib": 64, "record_kib": 4, "mode": "fsync", "custom": ["random-write"],
    });
    assert_eq!(
        server.ask("PUT", "api/settings", &settings.to_string()).status,
        200
    );
    browser.tab_to("[data-preset=custom]");
    browser.key("Enter");
    browser.wait("document.getElementById('phase').textContent.includes('measuring')");
    browser.wait("document.querySelector('#live-chart polyline')");
    let now = browser.value("Number(document.getElementById('progress').getAttribute('aria-valuenow'))");
    assert!(now.as_i64().expect("a number") < 100);
    assert_eq!(
        browser.value("document.querySelector('[data-preset=all]').disabled"),
        true
    );
    browser.picture("running");
    browser.tab_to("#stop");
    browser.key("Enter");
    browser.wait("document.getElementById('run').dataset.status === 'stopped'");
    browser.wait("document.querySelector('#results').textContent.includes('partial')");
    assert!(
        browser
            .value("document.getElementById('announcer').textContent")
            .as_str()
            .expect("a text")
            .contains("Stopped")
    );
    assert_eq!(server.files_in_data(), 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn settings_are_saved_and_wrong_ones_are_named_at_their_field() {
    let Some((server, mut browser)) = opened() else {
        return;
    };
    select_tab(&mut browser, "settings");
    browser.value("document.getElementById('threads').value = '2'");
    browser.value("document.querySelector('#custom input[value=delete]').click()");
    browser.value("document.getElementById('settings').requestSubmit()");
    browser.wait("document.getElementById('saved').textContent === 'Saved'");
    let stored: serde_json::Value =
        serde_json::from_slice(&std::fs::read(server.file("ui.json")).expect("a file")).expect("JSON");
    assert_eq!(stored["threads"], 2);
    assert_eq!(stored["custom"], json!(["random-write", "insert", "delete"]));
    assert_eq!(
        browser.value("document.getElementById('custom-count').textContent"),
        "3 steps chosen"
    );
    browser.picture("settings-light");
    browser.open(&server.address);
    assert_eq!(browser.value("document.getElementById('threads').value"), "2");
    assert_eq!(browser.complaints(), Vec::<String>::new());

    // The browser logs a 400 response in its console: expect complaints from here on.
    browser.value("document.getElementById('record_kib').value = '3'");
    browser.value("document.getElementById('settings').requestSubmit()");
    browser.wait("document.getElementById('saved').textContent.includes('whole number of records')");
    assert_eq!(browser.value("document.activeElement.id"), "");
}

#[test]
fn screen_readers_get_roles_names_and_values() {
    let Some((_server, mut browser)) = opened() else {
        return;
    };
    run(&mut browser, "custom", 1);
    let roles = browser.roles();
    let has = |role: &str, name: &str| roles.iter().any(|(is, called, _)| is == role && called == name);
    for (role, name) in [
        ("tablist", "Sections"),
        ("tab", "Measure"),
        ("tab", "Settings"),
        ("tab", "History"),
        ("tabpanel", "Measure"),
        ("heading", "Tidegate"),
        ("heading", "Done"),
        ("combobox", "Measure in this folder"),
        ("progressbar", "Progress of the run"),
        ("table", "Results"),
        ("columnheader", "Throughput"),
    ] {
        assert!(has(role, name), "{role} `{name}` is missing in {roles:?}");
    }
    let bar = roles
        .iter()
        .find(|(role, ..)| role == "progressbar")
        .expect("a bar");
    assert!(bar.2.contains("100"), "{bar:?}");
    assert!(
        roles
            .iter()
            .any(|(role, name, _)| role == "image" && name.contains("speed over time")),
        "{roles:?}"
    );
    assert!(roles.iter().any(|(role, ..)| role == "status"), "no live region");
    select_tab(&mut browser, "settings");
    select_tab(&mut browser, "history");
    let roles = browser.roles();
    // Every control has a name.
    for (role, name, _) in &roles {
        let is_control = matches!(
            role.as_str(),
            "button" | "textbox" | "checkbox" | "link" | "combobox" | "spinbutton"
        );
        assert!(!is_control || !name.is_empty(), "a {role} has no name: {roles:?}");
    }
    assert!(
        roles
            .iter()
            .any(|(role, name, _)| role == "checkbox" && name == "Select run 1")
    );
    assert!(
        roles
            .iter()
            .any(|(role, name, _)| role == "table" && name.starts_with("Runs"))
    );
}

#[test]
fn a_phone_shows_everything_without_sideways_scrolling_by_day_and_night() {
    let Some((_server, mut browser)) = opened() else {
        return;
    };
    run(&mut browser, "custom", 1);
    run(&mut browser, "all", 2);
    for (width, height) in [(360, 740), (1100, 900)] {
        browser.resize(width, height);
        for theme in ["light", "dark"] {
            browser.theme(theme);
            for tab in ["measure", "settings", "history"] {
                select_tab(&mut browser, tab);
                if tab == "history" {
                    browser.value("document.querySelector('#runs button.link').click()");
                    browser.wait("document.querySelector('#detail h2')");
                    browser.wait("document.getAnimations().length === 0");
                }
                browser.picture(&format!("{tab}-{theme}-{width}"));
                let wide = browser.value("document.documentElement.scrollWidth");
                assert!(wide.as_u64() <= Some(u64::from(width)), "{tab} is {wide} px wide");
                let small = browser.value(SMALL_TARGETS);
                assert_eq!(small, json!([]), "{tab} at {width} px has small targets");
                let faint = browser.value(FAINT_TEXTS);
                assert_eq!(faint, json!([]), "{tab} in {theme} has faint text");
            }
        }
    }
    select_tab(&mut browser, "history");
    browser.value(
        "document.querySelectorAll('#runs input').forEach((box) => { if (!box.checked) box.click(); })",
    );
    browser.value("document.getElementById('compare').click()");
    browser.wait("document.querySelector('#detail .verdict')");
    for (width, theme) in [(360, "light"), (1100, "dark")] {
        browser.resize(width, 800);
        browser.theme(theme);
        browser.picture(&format!("compare-{theme}-{width}"));
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(
            wide.as_u64() <= Some(u64::from(width)),
            "comparison is {wide} px wide"
        );
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn exports_are_files_with_what_was_chosen() {
    let Some((_server, mut browser)) = opened() else {
        return;
    };
    run(&mut browser, "custom", 1);
    run(&mut browser, "custom", 2);
    select_tab(&mut browser, "history");
    let lines = |browser: &mut Browser, format: &str| {
        let text = browser.value(&format!(
            "fetch(document.getElementById('export-{format}').href).then((answer) =>
               answer.headers.get('content-disposition').includes('attachment') ? answer.text() : 'shown')"
        ));
        text.as_str().expect("a text").lines().count()
    };
    assert_eq!(lines(&mut browser, "json"), 4, "two steps of two runs");
    browser.value("document.querySelector(\"[aria-label='Select run 1']\").click()");
    assert_eq!(
        browser.value("document.getElementById('export-label').textContent"),
        "Export selected"
    );
    assert_eq!(lines(&mut browser, "json"), 2);
    // One line per operation, after one header line, or after a header of two lines.
    let operations = lines(&mut browser, "csv") - 1;
    assert!(operations >= 2, "{operations}");
    assert_eq!(lines(&mut browser, "markdown"), operations + 2);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Visible controls whose height is less than a thumb's width, except links in text.
const SMALL_TARGETS: &str = "[...document.querySelectorAll('button, select, input, .export a, .check')]
    .filter((element) => element.checkVisibility() && element.type !== 'checkbox')
    .map((element) => [element.id || element.textContent || element.name, element.getBoundingClientRect().height])
    .filter(([, height]) => height < 43.5)";

/// Texts with a contrast to their background below 4.5 to 1.
const FAINT_TEXTS: &str = "(() => {
    const parts = (colour) => (colour.match(/[0-9.]+/g) ?? []).map(Number);
    const light = (colour) => parts(colour).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
      .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
    const ground = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        if (parts(colour)[3] !== 0) return colour;
      }
      return 'rgb(255, 255, 255)';
    };
    return [...document.querySelectorAll('main *, header *')]
      .filter((element) => element.checkVisibility() && !element.closest(':disabled, svg, .unseen')
        && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
      .map((element) => {
        const [one, other] = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
        return [element.textContent.trim().slice(0, 40), (one + 0.05) / (other + 0.05)];
      })
      .filter(([, contrast]) => contrast < 4.5);
  })()";
