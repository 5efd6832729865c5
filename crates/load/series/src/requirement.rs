//! Requirements of `--require LABEL:WORKLOAD>=RATIO` (or `<=`), which must hold for exit code 0.

use std::str::FromStr;

use report::Comparison;

use crate::Workload;

/// Direction of a limit on a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `>=`
    AtLeast,
    /// `<=`, for workloads in which being faster than the baseline means that work was skipped.
    AtMost,
}

/// A limit on the speed of a configuration relative to the baseline, for one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// The configuration.
    pub label: String,
    /// The workload.
    pub workload: Workload,
    /// Direction of the limit.
    pub bound: Bound,
    /// Limit for the median of the ratios.
    pub ratio: f64,
}

impl FromStr for Requirement {
    type Err = String;

    /// Parses the value of `--require`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no requirement; write for example tidegate:write-512k>=0.98");
        let at_least = text.split_once(">=").map(|parts| (Bound::AtLeast, parts));
        let at_most = || text.split_once("<=").map(|parts| (Bound::AtMost, parts));
        let (bound, (what, ratio)) = at_least.or_else(at_most).ok_or_else(wrong)?;
        let (label, workload) = what.split_once(':').ok_or_else(wrong)?;
        let ratio: f64 = ratio.trim().parse().map_err(|_| wrong())?;
        if !ratio.is_finite() || ratio <= 0.0 || label.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            label: label.to_owned(),
            workload: workload.trim().parse()?,
            bound,
            ratio,
        })
    }
}

impl Requirement {
    /// Describes the violation; `None` if the requirement is met.
    #[must_use]
    pub fn violation(&self, comparisons: &[Comparison]) -> Option<String> {
        let name = self.workload.name;
        let comparison = comparisons.iter().find(|one| one.workload == name);
        let does = match self.bound {
            Bound::AtLeast => "reaches",
            Bound::AtMost => "is not above",
        };
        let required = format!(
            "required: {} {does} {} of the baseline in {name}",
            self.label, self.ratio
        );
        match comparison.and_then(|one| one.ratio_of(&self.label)) {
            Some(ratio) if self.holds_for(ratio) => None,
            Some(ratio) => Some(format!("{required}; measured: {ratio:.3}")),
            None => Some(format!("{required}; it was not measured")),
        }
    }

    fn holds_for(&self, ratio: f64) -> bool {
        match self.bound {
            Bound::AtLeast => ratio >= self.ratio,
            Bound::AtMost => ratio <= self.ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Requirement, String> {
        text.parse()
    }

    #[test]
    fn a_requirement_names_configuration_workload_and_ratio() {
        let requirement = parse("tidegate:write-512k>=0.98").unwrap();
        assert_eq!(requirement.label, "tidegate");
        assert_eq!(requirement.workload.name, "write-512k");
        assert_eq!((requirement.bound, requirement.ratio), (Bound::AtLeast, 0.98));
        let requirement = parse("a:randwrite-4k-dsync<=1.05").unwrap();
        assert_eq!(requirement.workload.name, "randwrite-4k-dsync");
        assert_eq!((requirement.bound, requirement.ratio), (Bound::AtMost, 1.05));
        assert!(requirement.holds_for(1.05) && !requirement.holds_for(1.06) && requirement.holds_for(0.2));
        for text in [
            "",
            "tidegate",
            "tidegate:write-512k",
            "a:write-512k>=x",
            "a:turbo>=1",
            ":write-4k>=1",
            "a:write-4k>=0",
            "a:write-4k>=inf",
            "a:write-4k<1",
            "a:write-4k<=-1",
        ] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn an_unmeasured_requirement_is_not_met() {
        let requirement = parse("tidegate:write-512k>=0.98").unwrap();
        assert!(requirement.violation(&[]).unwrap().contains("not measured"));
        let requirement = parse("tidegate:write-512k<=1.05").unwrap();
        let violation = requirement.violation(&[]).unwrap();
        assert!(violation.contains("is not above 1.05 of the baseline in write-512k; it was not measured"));
    }
}
