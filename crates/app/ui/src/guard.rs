//! Access control: the token of this server in the path, a loopback name in `Host`, no foreign origin.
//!
//! All three are checked on every request before it is processed, and every response carries the same headers. The
//! token is in the path so that a page opened by its link needs no cookie, which other programs on loopback would
//! share; `no-referrer` keeps the token from leaking.

use std::fs::File;
use std::io::{self, Read};

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{StatusCode, uri::Authority};
use axum::middleware::Next;
use axum::response::Response;

use crate::respond::refusal;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 24;

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// The secret of one server.
#[derive(Clone, Debug)]
pub struct Token(String);

impl Token {
    /// A new random token.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token as in the path.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares in constant time, so that the duration does not reveal how much of a guess is correct.
    fn is(&self, guess: &str) -> bool {
        let (token, guess) = (self.0.as_bytes(), guess.as_bytes());
        let length_differs = token.len() ^ guess.len();
        let differing = token
            .iter()
            .enumerate()
            .map(|(index, byte)| byte ^ guess.get(index).copied().unwrap_or_default())
            .fold(0, |all, one| std::hint::black_box(all | one));
        length_differs == 0 && differing == 0
    }
}

/// Rejects forbidden requests, forwards the others, and adds the headers.
pub async fn guard(State(token): State<Token>, request: Request, next: Next) -> Response {
    let mut response = match forbidden(&token, request.uri().path(), request.headers()) {
        Some((status, reason)) => refusal(status, reason),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

fn forbidden(token: &Token, path: &str, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_loopback_name) {
        return Some((
            StatusCode::FORBIDDEN,
            "this page answers to 127.0.0.1, [::1] and localhost alone",
        ));
    }
    let origin = headers.get(header::ORIGIN).map(HeaderValue::to_str);
    let is_own = |origin: &str| origin.strip_prefix("http://") == host;
    if origin.is_some_and(|origin| !origin.is_ok_and(is_own)) {
        return Some((StatusCode::FORBIDDEN, "another page may not ask"));
    }
    let guess = path.split('/').nth(1).unwrap_or_default();
    (!token.is(guess)).then_some((
        StatusCode::NOT_FOUND,
        "nothing is here; open the whole address that `tidegate ui` printed",
    ))
}

/// Any port is allowed: it may be that of a tunnel.
fn is_loopback_name(host: &str) -> bool {
    host.parse::<Authority>().is_ok_and(|authority| {
        matches!(authority.host(), "127.0.0.1" | "localhost" | "[::1]") && !authority.as_str().contains('@')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(token: &Token, path: &str, host: &str, origin: Option<&str>) -> Option<StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        forbidden(token, path, &headers).map(|(status, _)| status)
    }

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token::random().unwrap();
        let path = format!("/{}/", token.text());
        assert_eq!(status(&token, &path, "127.0.0.1:8080", None), None);
        let longer = format!("/{}0/", token.text());
        let shorter = &path[..path.len() - 2];
        for wrong in ["/", "", "//", "/x/", &longer, shorter, &path[1..]] {
            assert_eq!(
                status(&token, wrong, "localhost", None),
                Some(StatusCode::NOT_FOUND),
                "{wrong}"
            );
        }
        assert_ne!(token.text(), Token::random().unwrap().text());
    }

    #[test]
    fn names_of_other_machines_are_refused_whatever_they_resolve_to() {
        let token = Token::random().unwrap();
        let path = format!("/{}/", token.text());
        for host in ["localhost:1", "[::1]:1", "127.0.0.1"] {
            assert_eq!(status(&token, &path, host, None), None, "{host}");
        }
        for host in [
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1@evil.example",
            "",
        ] {
            assert_eq!(
                status(&token, &path, host, None),
                Some(StatusCode::FORBIDDEN),
                "{host}"
            );
        }
        assert!(forbidden(&token, &path, &HeaderMap::new()).is_some());
    }

    #[test]
    fn another_origin_is_refused_even_with_the_token() {
        let token = Token::random().unwrap();
        let path = format!("/{}/", token.text());
        let asked = |origin| status(&token, &path, "localhost:5", Some(origin));
        assert_eq!(asked("http://localhost:5"), None);
        for origin in [
            "http://localhost:6",
            "https://localhost:5",
            "null",
            "http://evil.example",
        ] {
            assert_eq!(asked(origin), Some(StatusCode::FORBIDDEN), "{origin}");
        }
    }
}
