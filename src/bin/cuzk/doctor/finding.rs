//! What one check found.

use serde_json::{json, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    /// It works, but more slowly, less safely or not for long.
    Warn,
    /// What is configured cannot work.
    Problem,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warn => "warn",
            Self::Problem => "problem",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: `driver`, `gpu 0000:1b:00.0 link`.
    pub name: String,
    pub verdict: Verdict,
    pub what: String,
    /// What to do; empty where all is fine.
    pub advice: String,
}

impl Finding {
    pub fn fine(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Fine, what: what.into(), advice: String::new() }
    }

    pub fn warn(name: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Warn, what: what.into(), advice: advice.into() }
    }

    pub fn problem(name: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Problem, ..Self::warn(name, what, advice) }
    }

    pub fn as_json(&self) -> Value {
        json!({ "check": self.name, "verdict": self.verdict.as_str(), "what": self.what, "advice": self.advice })
    }

    /// One line, and one for what to do; names are padded to `width`.
    pub fn text(&self, width: usize) -> String {
        let verdict = self.verdict.as_str();
        let line = format!("{verdict:<7}  {:<width$}  {}", self.name, self.what);
        if self.advice.is_empty() {
            return line;
        }
        format!("{line}\n{}  -> {}", " ".repeat(9 + width), self.advice)
    }
}
