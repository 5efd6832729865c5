//! Bar charts as inline SVG: groups of bars on a linear or logarithmic axis, with a dot for each sample.
//!
//! Colours and fonts come from the page's style sheet by class (`bar series-0`, `axis`, `dot`), so that one drawing
//! serves light and dark mode. Every element has a `<title>`, which browsers show on hover and screen readers read
//! aloud. Coordinates are rounded to a tenth, so that the bytes are the same on every machine.

use results::nearest_f64;

use crate::html::escape;
use crate::number;

const STYLE: &str = include_str!("page.css");

/// Number of colours in the style sheet; further series reuse them.
pub const SERIES_COLORS: usize = 8;

pub(crate) const LEFT: f64 = 76.0;
pub(crate) const RIGHT: f64 = 14.0;
pub(crate) const TOP: f64 = 46.0;
pub(crate) const PLOT_HEIGHT: f64 = 250.0;
/// Width that charts with few bars are stretched to, and the minimum and maximum width per bar.
pub(crate) const WIDTH_WANTED: f64 = 620.0;
const SLOT_WIDTH_MIN: f64 = 92.0;
const SLOT_WIDTH_MAX: f64 = 140.0;
/// Fraction of its slot that a bar fills.
const BAR_PART: f64 = 0.6;
const GROUP_GAP: f64 = 26.0;
pub(crate) const LINE_HEIGHT: f64 = 17.0;
/// Values from here on are not drawn: real counts and rates are smaller, and arithmetic with larger ones overflows.
const LARGEST: f64 = 1e15;
/// Maximum decades of a logarithmic axis; smaller values are drawn at its foot.
const DECADES_MAX: f64 = 12.0;
const LABEL_LINES: usize = 3;
const LABEL_LETTERS: usize = 11;

/// Scale of the value axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// From the power of ten below the smallest value; values of zero or less have no bar.
    Logarithmic,
}

/// A chart of grouped bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// Title, for screen readers.
    pub title: String,
    /// Title of the value axis, with the unit.
    pub axis: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Groups of bars.
    pub groups: Vec<BarGroup>,
}

/// A group of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// Label below the group; empty for none.
    pub label: String,
    /// A line across the group.
    pub reference: Option<f64>,
    /// Bars from left to right.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Label below the bar.
    pub label: String,
    /// Height; `None` and non-finite values are drawn as "n/a".
    pub value: Option<f64>,
    /// Samples, each drawn as a dot.
    pub samples: Vec<f64>,
    /// Lines above the bar, the first one bold.
    pub annotation: Vec<String>,
    /// Text shown on hover.
    pub tooltip: String,
    /// Index of its colour.
    pub series: usize,
}

impl BarChart {
    /// The drawing, or an empty string if there is no bar.
    #[must_use]
    pub fn render(&self) -> String {
        let Some(Drawing {
            width,
            height,
            inside,
        }) = self.draw()
        else {
            return String::new();
        };
        // A chart with few bars shrinks to a phone, where the style sheet enlarges its text; a wide one scrolls.
        let smallest = width * if width <= WIDTH_WANTED { 0.5 } else { 0.85 };
        let largest = width * 1.5;
        format!(
            "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 {width:.1} {height:.1}\" \
             style=\"min-width:{smallest:.0}px;max-width:{largest:.0}px\">\n{inside}</svg>\n"
        )
    }

    /// The drawing as a separate file, in the page's light colours on a light background; empty if there is no bar.
    #[must_use]
    pub fn render_standalone(&self) -> String {
        let Some(Drawing {
            width,
            height,
            inside,
        }) = self.draw()
        else {
            return String::new();
        };
        let (style, paper) = (light_style(), light_color("paper"));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.1} {height:.1}\" font-family=\"system-ui, Helvetica, Arial, sans-serif\">\n\
             <style>\n{style}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"{paper}\"/>\n{inside}</svg>\n"
        )
    }

    fn draw(&self) -> Option<Drawing> {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        if bars == 0 {
            return None;
        }
        let gaps = GROUP_GAP * small(self.groups.len());
        let labels = self
            .groups
            .iter()
            .flat_map(|group| &group.bars)
            .map(|bar| wrapped(&bar.label).len());
        let layout = Layout {
            axis: Axis::new(self.scale, &self.values()),
            slot: ((WIDTH_WANTED - LEFT - RIGHT - gaps) / small(bars)).clamp(SLOT_WIDTH_MIN, SLOT_WIDTH_MAX),
            label_lines: labels.max().unwrap_or(0),
        };
        let has_group_labels = self.groups.iter().any(|group| !group.label.is_empty());
        let width = LEFT + RIGHT + layout.slot * small(bars) + gaps;
        let group_line = if has_group_labels { LINE_HEIGHT + 8.0 } else { 0.0 };
        let height = TOP + PLOT_HEIGHT + LINE_HEIGHT * small(layout.label_lines) + 12.0 + group_line;
        let title = escape(&self.title);
        let mut svg = format!("<title>{title}</title>\n");
        svg += &layout.axis.render(&self.axis, width - RIGHT);
        let mut left = LEFT;
        for group in &self.groups {
            svg += &group.render(&layout, left);
            left += GROUP_GAP + layout.slot * small(group.bars.len());
        }
        let bottom = TOP + PLOT_HEIGHT;
        let end = width - RIGHT;
        svg += &format!(
            "<line class=\"axis\" x1=\"{LEFT:.1}\" y1=\"{bottom:.1}\" x2=\"{end:.1}\" y2=\"{bottom:.1}\"/>\n"
        );
        Some(Drawing {
            width,
            height,
            inside: svg,
        })
    }

    fn values(&self) -> Vec<f64> {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let values = bars.flat_map(|bar| bar.samples.iter().copied().chain(bar.value));
        let references = self.groups.iter().filter_map(|group| group.reference);
        values
            .chain(references)
            .filter(|value| is_drawable(*value))
            .collect()
    }
}

impl BarGroup {
    fn render(&self, layout: &Layout, left: f64) -> String {
        let left = left + GROUP_GAP / 2.0;
        let width = layout.slot * small(self.bars.len());
        let mut svg = String::new();
        for (index, bar) in self.bars.iter().enumerate() {
            svg += &bar.render(layout, left + layout.slot * (small(index) + 0.5));
        }
        // Drawn above the bars, so that it stays visible, and below the text, which has a halo.
        if let Some(y) = self.reference.and_then(|value| layout.axis.position(value)) {
            let end = left + width;
            svg += &format!(
                "<line class=\"reference\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{end:.1}\" y2=\"{y:.1}\"/>\n"
            );
        }
        for (index, bar) in self.bars.iter().enumerate() {
            svg += &bar.render_words(layout, left + layout.slot * (small(index) + 0.5));
        }
        if !self.label.is_empty() {
            let y = TOP + PLOT_HEIGHT + LINE_HEIGHT * small(layout.label_lines) + 24.0;
            svg += &words("group", left + width / 2.0, y, &self.label);
        }
        svg
    }
}

impl Bar {
    fn render(&self, layout: &Layout, center: f64) -> String {
        let title = escape(&self.tooltip);
        let (series, width) = (self.series % SERIES_COLORS, layout.slot * BAR_PART);
        let mut svg = format!("<g><title>{title}</title>\n");
        if let Some(top) = self.value.and_then(|value| layout.axis.position(value)) {
            let (x, height) = (center - width / 2.0, (TOP + PLOT_HEIGHT - top).max(1.0));
            let y = TOP + PLOT_HEIGHT - height;
            svg += &format!(
                "<rect class=\"bar series-{series}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                 height=\"{height:.1}\" rx=\"2\"/>\n"
            );
        }
        svg += "</g>\n";
        let dots = small(self.samples.len());
        let distance = (width - 14.0) / dots.max(5.0);
        for (index, &sample) in self.samples.iter().enumerate() {
            if let Some(y) = layout.axis.position(sample) {
                let x = center + (small(index) - (dots - 1.0) / 2.0) * distance;
                let (round, value) = (index + 1, number::significant(sample));
                svg += &format!(
                    "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>round {round}: {value}</title>\
                     </circle>\n"
                );
            }
        }
        svg
    }

    fn render_words(&self, layout: &Layout, center: f64) -> String {
        let bottom = TOP + PLOT_HEIGHT;
        let value = self.value.filter(|value| is_drawable(*value));
        let tops = self
            .samples
            .iter()
            .copied()
            .chain(value)
            .filter_map(|value| layout.axis.position(value));
        let top = tops.fold(bottom, f64::min);
        let missing = [number::NOT_AVAILABLE.to_owned()];
        let lines: &[String] = if value.is_none() {
            &missing
        } else {
            &self.annotation
        };
        let mut svg = String::new();
        for (index, line) in lines.iter().enumerate() {
            let y = top - 8.0 - LINE_HEIGHT * small(lines.len() - 1 - index);
            svg += &words(if index == 0 { "strong" } else { "value" }, center, y, line);
        }
        for (index, line) in wrapped(&self.label).iter().enumerate() {
            svg += &words("label", center, bottom + 20.0 + LINE_HEIGHT * small(index), line);
        }
        svg
    }
}

/// The content of a drawing, and its size.
struct Drawing {
    width: f64,
    height: f64,
    inside: String,
}

/// Properties shared by all bars of a drawing.
#[derive(Debug)]
struct Layout {
    axis: Axis,
    /// Width per bar.
    slot: f64,
    /// Number of lines of the longest label below a bar.
    label_lines: usize,
}

/// The value axis: positions of values, and ticks.
#[derive(Debug)]
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Axis {
    pub(crate) fn new(scale: Scale, values: &[f64]) -> Self {
        let largest = values.iter().copied().fold(0.0, f64::max);
        match scale {
            Scale::Linear => {
                let step = nice_step(largest);
                let steps = (largest / step).ceil().max(1.0);
                let ticks = (0..=12_u64).map(nearest_f64).take_while(|tick| *tick <= steps);
                Self {
                    scale,
                    low: 0.0,
                    high: step * steps,
                    ticks: ticks.map(|tick| tick * step).collect(),
                }
            }
            Scale::Logarithmic => {
                let positive = values.iter().copied().filter(|value| *value > 0.0);
                let smallest = positive.fold(f64::INFINITY, f64::min);
                if !smallest.is_finite() {
                    return Self {
                        scale,
                        low: 1.0,
                        high: 10.0,
                        ticks: vec![1.0, 10.0],
                    };
                }
                // One decade below the smallest value, so that its bar has a height; from 1 if all values are larger.
                let first = smallest.log10().floor() - 1.0;
                let first = if smallest >= 1.0 { first.max(0.0) } else { first };
                let last = largest.log10().ceil().max(first + 1.0);
                let first = first.max(last - DECADES_MAX);
                let decades = (0..=20_u64).map(|step| first + nearest_f64(step));
                let ticks = decades
                    .take_while(|decade| *decade <= last)
                    .map(|decade| 10_f64.powf(decade));
                Self {
                    scale,
                    low: 10_f64.powf(first),
                    high: 10_f64.powf(last),
                    ticks: ticks.collect(),
                }
            }
        }
    }

    /// Distance from the top of the drawing; `None` if the value cannot be drawn.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let part = match self.scale {
            Scale::Linear if is_drawable(value) => value / self.high,
            Scale::Logarithmic if is_drawable(value) && value > 0.0 => {
                (value / self.low).log10() / (self.high / self.low).log10()
            }
            Scale::Linear | Scale::Logarithmic => return None,
        };
        Some(TOP + PLOT_HEIGHT * (1.0 - part.clamp(0.0, 1.0)))
    }

    pub(crate) fn render(&self, title: &str, end: f64) -> String {
        let mut svg = String::new();
        for &tick in &self.ticks {
            let Some(y) = self.position(tick) else { continue };
            let text = if tick >= 1.0 && tick.fract() == 0.0 {
                number::count(tick)
            } else {
                number::significant(tick)
            };
            let (right, below) = (LEFT - 8.0, y + 4.0);
            svg += &format!(
                "<line class=\"grid\" x1=\"{LEFT:.1}\" y1=\"{y:.1}\" x2=\"{end:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{right:.1}\" y=\"{below:.1}\">{text}</text>\n"
            );
        }
        svg + &format!(
            "<text class=\"axis-title\" x=\"2.0\" y=\"16.0\">{}</text>\n",
            escape(title)
        )
    }
}

/// Whether the value is finite and of a plausible size.
pub(crate) fn is_drawable(value: f64) -> bool {
    value.is_finite() && value.abs() < LARGEST
}

/// A step of 1, 2 or 5 times a power of ten that divides the range into four to ten parts.
fn nice_step(largest: f64) -> f64 {
    if largest <= 0.0 || !largest.is_finite() {
        return 0.25;
    }
    let rough = largest / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|step| step * power >= rough * 0.999)
        .unwrap_or(10.0);
    // Values too small for a power of ten would give steps of zero.
    (step * power).max(f64::MIN_POSITIVE)
}

/// A label in at most three lines; a longer one ends in an ellipsis, with the full text in the tooltip.
fn wrapped(label: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= LABEL_LETTERS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let is_cut = lines.len() > LABEL_LINES;
    lines.truncate(LABEL_LINES);
    let last = lines.len();
    for (index, line) in (1..).zip(&mut lines) {
        if line.chars().count() > LABEL_LETTERS || (is_cut && index == last) {
            *line = line.chars().take(LABEL_LETTERS - 1).collect::<String>() + "…";
        }
    }
    lines
}

pub(crate) fn words(class: &str, x: f64, y: f64, text: &str) -> String {
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
        escape(text)
    )
}

/// The style sheet's rules for drawings, with its light colours in place of variables, which some image viewers don't
/// support.
fn light_style() -> String {
    let rules = STYLE
        .lines()
        .filter(|line| line.starts_with("svg ") || line.starts_with(".series-"));
    let mut style = String::new();
    for rule in rules {
        let mut rest = rule;
        while let Some((before, after)) = rest.split_once("var(--") {
            let (name, after) = after.split_once(')').unwrap_or((after, ""));
            style += before;
            style += light_color(name);
            rest = after;
        }
        style += rest;
        style.push('\n');
    }
    style
}

/// A colour of the style sheet's first, light set.
fn light_color(name: &str) -> &'static str {
    let definition = format!("--{name}: ");
    let value = STYLE.split_once(definition.as_str()).map(|(_, after)| after);
    value
        .and_then(|after| after.split(';').next())
        .unwrap_or("#000000")
}

/// A small count as a coordinate.
pub(crate) fn small(count: usize) -> f64 {
    nearest_f64(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64) -> Bar {
        Bar {
            label: "label".to_owned(),
            value: Some(value),
            samples: vec![value],
            annotation: vec!["a".to_owned(), "b".to_owned()],
            tooltip: "tip".to_owned(),
            series: 0,
        }
    }

    fn chart(scale: Scale, values: &[f64]) -> String {
        let bars = values.iter().copied().map(bar).collect();
        let groups = vec![BarGroup {
            label: String::new(),
            reference: values.first().copied(),
            bars,
        }];
        BarChart {
            title: "t".to_owned(),
            axis: "MB/s".to_owned(),
            scale,
            groups,
        }
        .render()
    }

    #[test]
    fn an_empty_chart_is_no_drawing() {
        assert_eq!(chart(Scale::Linear, &[]), "");
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_above_the_largest_value() {
        let axis = Axis::new(Scale::Linear, &[412.0, 37.0]);
        assert_eq!(axis.ticks, [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert_eq!(axis.position(0.0), Some(TOP + PLOT_HEIGHT));
        assert_eq!(axis.position(500.0), Some(TOP));
    }

    #[test]
    fn a_logarithmic_axis_has_a_tick_for_each_power_of_ten() {
        let axis = Axis::new(Scale::Logarithmic, &[131_072.0, 256.0]);
        assert_eq!(
            axis.ticks,
            [10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0]
        );
        assert_eq!(axis.position(0.0), None);
    }

    #[test]
    fn nothing_that_is_not_finite_reaches_the_drawing() {
        let odd = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -1.0,
            1e300,
            f64::MIN_POSITIVE,
            5.0,
        ];
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let svg = chart(scale, &odd);
            let bad = svg
                .lines()
                .find(|line| line.contains("NaN") || line.contains("inf"));
            assert_eq!(bad, None, "{scale:?}");
            assert!(svg.contains(">n/a</text>"));
            let one = chart(scale, &[f64::NAN]);
            assert!(!one.contains("NaN") && !one.contains("class=\"bar"), "{one}");
        }
    }

    #[test]
    fn all_zero_values_still_have_an_axis() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let svg = chart(scale, &[0.0, 0.0]);
            assert!(svg.contains("class=\"tick\"") && !svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn long_labels_wrap_and_end_in_an_ellipsis() {
        assert_eq!(wrapped("FUSE 512 KiB"), ["FUSE 512", "KiB"]);
        assert_eq!(wrapped("bFUSE 8 MiB buffer"), ["bFUSE 8 MiB", "buffer"]);
        assert_eq!(wrapped("a-very-long-single-word"), ["a-very-lon…"]);
        assert_eq!(
            wrapped("one1234567 two1234567 three12345 four"),
            ["one1234567", "two1234567", "three12345…"]
        );
        assert!(wrapped("").is_empty());
    }

    #[test]
    fn words_from_outside_are_escaped() {
        let mut hostile = bar(1.0);
        hostile.label = "</svg><script>".to_owned();
        hostile.tooltip = "\"><script>".to_owned();
        hostile.annotation = vec!["<i>".to_owned()];
        let group = BarGroup {
            label: "<g>".to_owned(),
            reference: None,
            bars: vec![hostile],
        };
        let chart = BarChart {
            title: "<script>".to_owned(),
            axis: "<b>".to_owned(),
            scale: Scale::Linear,
            groups: vec![group],
        };
        let svg = chart.render();
        assert!(
            !svg.contains("<script") && !svg.contains("<i>") && !svg.contains("<b>"),
            "{svg}"
        );
    }

    #[test]
    fn the_golden_drawing_of_one_bar_does_not_change() {
        let expected = include_str!("../tests/golden/one_bar.svg");
        let found = chart(Scale::Linear, &[10.0]);
        assert_eq!(
            found, expected,
            "if the change is wanted, replace the golden file by:\n{found}"
        );
    }

    #[test]
    fn a_chart_of_its_own_carries_its_colours_as_plain_values() {
        let chart = BarChart {
            title: "t".to_owned(),
            axis: "MB/s".to_owned(),
            scale: Scale::Linear,
            groups: vec![BarGroup {
                label: String::new(),
                reference: None,
                bars: vec![Bar {
                    label: "one".to_owned(),
                    value: Some(1.0),
                    samples: Vec::new(),
                    annotation: Vec::new(),
                    tooltip: String::new(),
                    series: 0,
                }],
            }],
        };
        let svg = chart.render_standalone();
        assert!(
            svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""),
            "{svg}"
        );
        assert!(svg.contains(".series-0 { fill: #7a8591; }"), "{svg}");
        assert!(!svg.contains("var("), "{svg}");
    }
}
