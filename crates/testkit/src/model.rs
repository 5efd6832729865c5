//! Random operations on a file system and on the model, compared step by step.
