//! The classes of the Python module. Everything here is thin: values for Python, and the parts of the crate without it.

mod dump;
mod guard;
mod source;
mod tree;

use pyo3::prelude::*;

use crate::failure::Failure;

/// Parts of the Python package `tidegate`; not for users.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<dump::Dump>()?;
    module.add_class::<dump::Content>()?;
    module.add_class::<tree::Tree>()?;
    module.add_class::<tree::Node>()?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(panic, module)?)
}

/// Panics, so that a test sees the exception that it becomes.
#[pyfunction]
fn panic(py: Python<'_>) -> PyResult<()> {
    guard::without_gil(py, || -> Result<(), Failure> { panic!("a test asked for it") })
}
