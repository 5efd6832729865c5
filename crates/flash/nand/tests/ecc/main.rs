//! ECC of dumps, against an encoder of its own, vectors of other programs, and dumps of the kernel.

mod controllers;
mod encoder;
mod trial;
mod vectors;
