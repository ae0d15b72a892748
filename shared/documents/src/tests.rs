//! Documents from the outside: loaded, refused, compiled, rendered.

mod compiling;
mod loading;
mod policy_requests;
mod presets;
mod rejections;
mod sources;
