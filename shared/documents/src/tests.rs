//! Documents from the outside: loaded, refused, compiled, rendered.

mod compiling;
mod loading;
mod presets;
mod rejections;
mod sources;
