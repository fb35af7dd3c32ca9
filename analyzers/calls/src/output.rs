//! The tree as other tools read it.

use crate::tree::{Function, Node, ROOT, Region, Tree};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

/// A function's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The function's.
    pub function: String,
    /// The file that it is in.
    pub module: String,
    /// Its source file; empty if nothing is known.
    pub file: String,
}

fn path(tree: &Tree, names: &[Name], mut node: Node) -> Vec<String> {
    let mut parts = Vec::new();
    while node != ROOT {
        // What separates the parts must not be in one.
        parts.push(names[tree.nodes[node].function as usize].function.replace(';', ":"));
        node = tree.nodes[node].parent;
    }
    parts.reverse();
    parts
}

/// Folded stacks of a region, or of all, as `flamegraph.pl` and its kin read them: `base;outer;inner instructions`.
pub fn folded(out: &mut dyn Write, base: &str, tree: &Tree, region: Option<Region>, names: &[Name]) -> io::Result<()> {
    for (node, data) in tree.nodes.iter().enumerate() {
        let insns = data.cost(region).insns;
        if insns > 0 {
            let mut parts = vec![base.to_string()];
            parts.extend(path(tree, names, node));
            writeln!(out, "{} {insns}", parts.join(";"))?;
        }
    }
    Ok(())
}

/// The tree as a flat list: each entry has its caller's number in the list, `null` if it has none; callers come before what they call, the
/// most expensive first. So a reader's limit of nested values does not limit how deep calls may be.
pub fn list(tree: &Tree, region: Option<Region>, names: &[Name]) -> Vec<serde_json::Value> {
    let inclusive = tree.inclusive(region);
    let mut all = Vec::new();
    let mut todo: Vec<(Node, Option<usize>)> =
        tree.children(ROOT, &inclusive).into_iter().rev().map(|n| (n, None)).collect();
    while let Some((node, parent)) = todo.pop() {
        let data = &tree.nodes[node];
        let cost = data.cost(region);
        // Of a region, only what it reached.
        if inclusive[node] == 0 && cost.calls == 0 {
            continue;
        }
        let name = &names[data.function as usize];
        let number = all.len();
        all.push(serde_json::json!({
            "parent": parent,
            "function": name.function,
            "module": name.module,
            "calls": cost.calls,
            "insns": cost.insns,
            "inclusive": inclusive[node],
        }));
        todo.extend(tree.children(node, &inclusive).into_iter().rev().map(|n| (n, Some(number))));
    }
    all
}

/// What callgrind's format says of a function.
#[derive(Default)]
struct Cost {
    own: u64,
    /// By callee: calls, and what they cost with all below.
    calls: BTreeMap<Function, (u64, u64)>,
}

/// Callgrind's format, version 1 (<https://valgrind.org/docs/manual/cl-format.html>): costs by function, `Ir` alone. Lines are 0.
pub fn callgrind(out: &mut dyn Write, command: &str, trees: &[&Tree], names: &[Name]) -> io::Result<()> {
    let mut costs: BTreeMap<Function, Cost> = BTreeMap::new();
    let mut total = 0;
    for tree in trees {
        let inclusive = tree.inclusive(None);
        total += inclusive[ROOT];
        // Depth first: a call on the way down that is on it already is within the outer one's cost.
        let mut todo: Vec<(Node, bool)> = tree.children(ROOT, &inclusive).into_iter().map(|n| (n, false)).collect();
        let mut on_the_way: HashSet<(Function, Function)> = HashSet::new();
        while let Some((node, leave)) = todo.pop() {
            let data = &tree.nodes[node];
            let caller = (data.parent != ROOT).then(|| tree.nodes[data.parent].function);
            let edge = caller.map(|c| (c, data.function));
            if leave {
                edge.map(|e| on_the_way.remove(&e));
                continue;
            }
            let cost = data.cost(None);
            costs.entry(data.function).or_default().own += cost.insns;
            if let Some(edge) = edge {
                let call = costs.entry(edge.0).or_default().calls.entry(edge.1).or_default();
                call.0 += cost.calls;
                if on_the_way.insert(edge) {
                    call.1 += inclusive[node];
                    todo.push((node, true));
                }
            }
            todo.extend(tree.children(node, &inclusive).into_iter().map(|n| (n, false)));
        }
    }
    writeln!(out, "# callgrind format\nversion: 1\ncreator: trapline\ncmd: {command}\npositions: line\nevents: Ir")?;
    writeln!(out, "summary: {total}\n")?;
    let known = |text: &str| if text.is_empty() { "???".to_string() } else { text.to_string() };
    for (function, cost) in &costs {
        let name = &names[*function as usize];
        writeln!(out, "ob={}\nfl={}\nfn={}", known(&name.module), known(&name.file), name.function)?;
        writeln!(out, "0 {}", cost.own)?;
        for (callee, (calls, inclusive)) in &cost.calls {
            let name = &names[*callee as usize];
            writeln!(out, "cob={}\ncfi={}\ncfn={}", known(&name.module), known(&name.file), name.function)?;
            writeln!(out, "calls={calls} 0\n0 {inclusive}")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "totals: {total}")
}
