//! Escaping, and the HTML elements that the page uses.

use results::shown;

use crate::text_table::{Align, Column};

/// Escapes text for use between tags and inside quoted attributes.
///
/// Active characters, which are invalid in HTML or change how others are read, are escaped as in [`shown`].
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(letter),
            _ if shown::is_active(letter) => escaped += &shown::line(letter.encode_utf8(&mut [0; 4])),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// An element with plain text.
#[must_use]
pub fn text(name: &str, content: &str) -> String {
    format!("<{name}>{}</{name}>\n", escape(content))
}

/// A table that scrolls sideways on narrow screens. The first column is the heading of its row.
#[must_use]
pub fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let class = |align| match align {
        Align::Left => "",
        Align::Right => " class=\"number\"",
    };
    let mut html = String::from("<div class=\"scroll\"><table>\n<thead><tr>");
    for column in columns {
        html += &format!(
            "<th scope=\"col\"{}>{}</th>",
            class(column.align),
            escape(&column.title)
        );
    }
    html += "</tr></thead>\n<tbody>\n";
    for row in rows {
        html += "<tr>";
        for (index, column) in columns.iter().enumerate() {
            let cell = row.get(index).map_or_else(String::new, |cell| escape(cell));
            html += &if index == 0 {
                format!("<th scope=\"row\"{}>{cell}</th>", class(column.align))
            } else {
                format!("<td{}>{cell}</td>", class(column.align))
            };
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

/// A list of names and values; omits values that are `None`.
#[must_use]
pub fn definitions(entries: &[(&str, Option<String>)]) -> String {
    let mut html = String::from("<dl>\n");
    for (name, value) in entries {
        if let Some(value) = value {
            html += &format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
        }
    }
    html + "</dl>\n"
}

/// A picture with a caption.
#[must_use]
pub fn figure(picture: &str, caption: &str) -> String {
    let caption = escape(caption);
    format!("<figure><div class=\"scroll\">{picture}</div><figcaption>{caption}</figcaption></figure>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_can_end_its_place() {
        assert_eq!(
            escape("<b a=\"1\">'&'</b>"),
            "&lt;b a=&quot;1&quot;&gt;&#39;&amp;&#39;&lt;/b&gt;"
        );
        assert_eq!(escape("a\0b\u{1b}c\u{202e}\n"), "a\\u0000b\\u001bc\\u202e\n");
    }

    #[test]
    fn missing_values_are_left_out_of_lists() {
        let list = definitions(&[("kernel", Some("<6.12>".to_owned())), ("scheduler", None)]);
        assert_eq!(
            list,
            "<dl>\n<div><dt>kernel</dt><dd>&lt;6.12&gt;</dd></div>\n</dl>\n"
        );
    }
}
