//! Writes the list of the pages that `search_docs` searches: the book without the pages for people who change Ebb.

fn main() {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src");
    println!("cargo::rerun-if-changed={book}/SUMMARY.md");
    let summary = std::fs::read_to_string(format!("{book}/SUMMARY.md")).expect("the book has a summary");
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pages = links.filter(|page| !page.starts_with("decisions/") && !page.starts_with("internals/"));
    let rows: String = pages.map(|page| format!("({page:?}, include_str!(\"{book}/{page}\")),\n")).collect();
    let folder = std::env::var("OUT_DIR").expect("Cargo names a folder");
    std::fs::write(format!("{folder}/pages.rs"), format!("[\n{rows}]\n")).expect("the folder can be written to");
}
