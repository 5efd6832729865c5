//! Headless Chromium, driven over the DevTools protocol; only the functions that the tests of the page need.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// Time limit for an answer, or for an expected state of the page.
const PATIENCE: Duration = Duration::from_secs(60);

const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// A browser with one page, closed on drop.
pub struct Browser {
    child: Child,
    reader: Option<JoinHandle<()>>,
    _profile: TempDir,
    socket: WebSocket<TcpStream>,
    session: String,
    next: u64,
    events: VecDeque<Value>,
}

impl Browser {
    /// Returns `None`, with a printed reason, if there is no Chromium.
    pub fn start() -> Option<Self> {
        let profile = TempDir::new().expect("a temporary folder");
        let started = NAMES.iter().find_map(|name| launch(name, &profile));
        let Some(mut child) = started else {
            testkit::report_left_out(format!("no Chromium ({}) is installed", NAMES.join(", ")));
            return None;
        };
        let (address, reader) = devtools_address(&mut child);
        let host = address
            .strip_prefix("ws://")
            .and_then(|rest| rest.split('/').next())
            .expect("an address");
        let stream = TcpStream::connect(host).expect("Chromium listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (socket, _) = tungstenite::client(&address, stream).expect("a web socket");
        let mut browser = Self {
            child,
            reader: Some(reader),
            _profile: profile,
            socket,
            session: String::new(),
            next: 0,
            events: VecDeque::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Makes one call of the protocol and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket
            .send(Message::text(message.to_string()))
            .expect("sent");
        loop {
            let Message::Text(text) = self.socket.read().expect("Chromium answers in time") else {
                continue;
            };
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    /// The value of a JavaScript expression; waits for promises.
    pub fn value(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true}),
        );
        assert!(
            result.get("exceptionDetails").is_none(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits inside the page until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let patience_ms = PATIENCE.as_millis() / 2;
        let arrived = self.value(&format!(
            "new Promise((done) => {{ const end = performance.now() + {patience_ms};
               const look = () => {{ let is; try {{ is = {expression}; }} catch {{ is = false; }}
                 if (is || performance.now() > end) done(Boolean(is)); else setTimeout(look, 15); }}; look(); }})"
        ));
        if arrived != json!(true) {
            let text = self.value("document.body.innerText");
            panic!("never became true: {expression}; the page says: {text}");
        }
    }

    /// Opens an address and waits until its scripts have run.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
        self.wait("document.readyState === 'complete' && document.getElementById('directory').value");
    }

    /// Sets the size of the window, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}),
        );
    }

    /// Sets the colour scheme, `light` or `dark`.
    pub fn theme(&mut self, name: &str) {
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": name}]}),
        );
    }

    /// Presses and releases a key, such as `Tab`, `ArrowRight`, `Enter`, ` `.
    pub fn key(&mut self, key: &str) {
        let (code, number, text) = match key {
            "Enter" => ("Enter", 13, "\r"),
            " " => ("Space", 32, " "),
            "Tab" => ("Tab", 9, ""),
            "Home" => ("Home", 36, ""),
            "End" => ("End", 35, ""),
            "ArrowLeft" => ("ArrowLeft", 37, ""),
            "ArrowRight" => ("ArrowRight", 39, ""),
            other => panic!("no such key here: {other}"),
        };
        let event = |kind: &str| {
            let text = if kind == "keyDown" { text } else { "" };
            json!({"type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number, "text": text})
        };
        self.call("Input.dispatchKeyEvent", event("keyDown"));
        self.call("Input.dispatchKeyEvent", event("keyUp"));
    }

    /// Presses Tab until an element that matches the selector has the focus.
    pub fn tab_to(&mut self, selector: &str) {
        for _ in 0..80 {
            if self.value(&format!("document.activeElement.matches({})", json!(selector))) == json!(true) {
                return;
            }
            self.key("Tab");
        }
        panic!("{selector} can't be reached by the Tab key");
    }

    /// Role, name and value of everything in the accessibility tree.
    pub fn roles(&mut self) -> Vec<(String, String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let text = |node: &Value, field: &str| match &node[field]["value"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let nodes = tree["nodes"].as_array().expect("nodes");
        nodes
            .iter()
            .filter(|node| node["ignored"] != json!(true))
            .map(|node| (text(node, "role"), text(node, "name"), text(node, "value")))
            .collect()
    }

    /// Errors and warnings of the page.
    pub fn complaints(&mut self) -> Vec<String> {
        // A final call receives all pending events.
        self.value("1");
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                matches!(
                    event["params"]["type"].as_str(),
                    Some("error" | "warning" | "assert")
                )
            }
            Some("Log.entryAdded") => {
                matches!(
                    event["params"]["entry"]["level"].as_str(),
                    Some("error" | "warning")
                )
            }
            _ => false,
        };
        self.events
            .iter()
            .filter(is_complaint)
            .map(Value::to_string)
            .collect()
    }

    /// Writes a screenshot of the whole page to the folder named by TIDEGATE_UI_PICTURES, if it is set.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("TIDEGATE_UI_PICTURES") else {
            return;
        };
        self.value("scrollTo({top: 0, behavior: 'instant'})");
        let shot = self.call(
            "Page.captureScreenshot",
            json!({"format": "png", "captureBeyondViewport": true}),
        );
        let bytes = decoded(shot["data"].as_str().expect("a picture"));
        let path = std::path::Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(path, bytes).expect("the picture is written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // On a close request it removes its files outside the profile; the answer does not matter. Its child processes hold
        // its standard error: at end of file nothing writes to the profile any more.
        let close = json!({"id": 0, "method": "Browser.close"});
        let _ = self.socket.send(Message::text(close.to_string()));
        while self.socket.read().is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn launch(name: &str, profile: &TempDir) -> Option<Child> {
    Command::new(name)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--no-default-browser-check",
            "--remote-debugging-port=0",
            "--hide-scrollbars",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .env("TMPDIR", profile.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()
}

/// Reads the address that Chromium prints; a thread discards further output, so that Chromium never blocks on the pipe.
fn devtools_address(child: &mut Child) -> (String, JoinHandle<()>) {
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let address = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned))
        .expect("Chromium says where it listens");
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (address, reader)
}

/// Decodes Base64 (RFC 4648).
fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text
        .bytes()
        .filter_map(|letter| LETTERS.iter().position(|known| *known == letter))
        .filter_map(|digit| u32::try_from(digit).ok())
        .collect();
    let group = |digits: &[u32]| {
        let bits = digits
            .iter()
            .enumerate()
            .fold(0, |all, (index, digit)| all | (digit << (18 - 6 * index)));
        bits.to_be_bytes()[1..digits.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
