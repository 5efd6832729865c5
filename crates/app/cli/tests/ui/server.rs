//! A server of the page with its own files, and a plain HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running `tidegate ui`, ended on drop.
pub struct Server {
    child: Option<Child>,
    /// Kept open, so that the server can print.
    _out: BufReader<ChildStdout>,
    folder: TempDir,
    /// The printed address.
    pub address: String,
}

/// A response of the server.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Server {
    pub fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a folder to measure");
        let settings = serde_json::json!({
            "directory": data, "write_mib": 1, "read_mib": 1, "record_kib": 64, "mode": "buffered",
            "transactions": 5, "custom": ["random-write", "insert"],
        });
        std::fs::write(folder.path().join("ui.json"), settings.to_string()).expect("settings");
        let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
        let page = program.with_file_name("tidegate-ui");
        assert!(
            page.exists(),
            "its program is built by: cargo test -p cli -p ui --test ui"
        );
        let mut child = Command::new(program)
            .arg("ui")
            .arg("--settings")
            .arg(folder.path().join("ui.json"))
            .arg("--history")
            .arg(folder.path().join("history.db"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut address = String::new();
        out.read_line(&mut address).expect("the address");
        assert!(address.starts_with("http://127.0.0.1:"), "{address:?}");
        Self {
            child: Some(child),
            _out: out,
            folder,
            address: address.trim_end().to_owned(),
        }
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn files_in_data(&self) -> usize {
        count(&self.data())
    }

    /// The address without scheme and token, and the token with its slashes.
    pub fn parts(&self) -> (String, String) {
        let rest = self.address.strip_prefix("http://").expect("plain HTTP");
        let (host, token) = rest.split_once('/').expect("a path");
        (host.to_owned(), format!("/{token}"))
    }

    /// Sends one request below the token.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let (host, token) = self.parts();
        self.raw(method, &format!("{token}{path}"), &[("Host", &host)], body)
    }

    /// Sends one request with only these headers.
    pub fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.connect();
        let mut request = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!(
            "Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Answer {
            status: status.expect("a status"),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// Reads the events of the run until one matches `wanted`.
    pub fn follow(&self, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let (host, token) = self.parts();
        let mut stream = self.connect();
        let request = format!("GET {token}api/events HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut lines = BufReader::new(stream).lines();
        loop {
            let line = lines.next().expect("events go on").expect("readable");
            // HTTP/1.1 chunk headers are separate lines; each event is one line.
            let Some(text) = line.strip_prefix("data: ") else {
                continue;
            };
            let state: serde_json::Value = serde_json::from_str(text).expect("a state in JSON");
            if wanted(&state) {
                return state;
            }
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.parts().0).expect("the server listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout");
        stream
    }

    /// Interrupts the server like Ctrl-C.
    pub fn interrupt(&mut self) -> Output {
        let child = self.child.take().expect("it was not ended yet");
        signal(&child, Signal::INT);
        child.wait_with_output().expect("it ends")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal(&child, Signal::INT);
            // A failed test has already reported the reason.
            let _ = child.wait();
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), signal).expect("it runs");
}

pub fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("it is there").count()
}
