//! The edge to Python: work is done without the GIL, and neither errors nor panics cross it as anything but exceptions.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::{Class, Failure};

thread_local! {
    /// An exception of a callable that a dump reads by, such as KeyboardInterrupt.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Keeps an exception for the end of the call that this thread is in: a dump takes bytes that can't be read for erased, and
/// has a finding. In another thread of the call, where no signal of Python is raised, only the finding is left.
pub fn keep(error: PyErr) {
    RAISED.with_borrow_mut(|raised| {
        raised.get_or_insert(error);
    });
}

/// Runs work without the GIL.
pub fn without_gil<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    // Values that a panic leaves half changed belong to the call alone: what is shared is only read.
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    if let Some(error) = RAISED.take() {
        return Err(error);
    }
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(exception(py, &failure)),
        Err(panic) => Err(exception(py, &of_panic(&*panic))),
    }
}

/// As [`without_gil`], for work that fills `bytes` bytes.
pub fn fill<'py>(
    py: Python<'py>,
    bytes: usize,
    work: impl FnOnce(&mut [u8]) -> Result<(), Failure> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes, |out| without_gil(py, || work(out)))
}

fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message");
    Failure {
        class: Class::Internal,
        problem: format!("a defect of tidegate: {text}"),
        place: String::new(),
        next_step: "report it with the file that shows it",
    }
}

/// The exception of an error.
pub fn exception(py: Python<'_>, failure: &Failure) -> PyErr {
    let raised = py
        .import("tidegate._errors")
        .and_then(|errors| errors.getattr(failure.class.name()))
        .and_then(|class| class.call1((&failure.problem, &failure.place, failure.next_step)));
    match raised {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}
