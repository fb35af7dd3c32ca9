//! The tree, and the stack of a thread in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A function, by number.
pub type Function = u32;
/// A node, by number; [`ROOT`] is the root.
pub type Node = usize;
/// The root: no function.
pub const ROOT: Node = 0;
/// A region of interest, by number.
pub type Region = usize;

/// Deeper calls are counted where they are, so that endless recursion does not grow the tree without end.
const DEEPEST: usize = 1000;

/// What a function cost where it was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often it was called.
    pub calls: u64,
    /// Instructions of its own.
    pub insns: u64,
}

impl NodeData {
    /// The cost in a region; `None` is all of them.
    pub fn cost(&self, region: Option<Region>) -> Cost {
        match region {
            Some(region) => self.costs.get(&region).copied().unwrap_or_default(),
            None => self
                .costs
                .values()
                .fold(Cost::default(), |sum, c| Cost { calls: sum.calls + c.calls, insns: sum.insns + c.insns }),
        }
    }
}

/// What was called from where.
#[derive(Debug, Default)]
pub struct NodeData {
    /// The node that called it.
    pub parent: Node,
    /// The function; of the root, 0.
    pub function: Function,
    /// What it cost in each region of interest; one that is not there is nothing.
    pub costs: BTreeMap<Region, Cost>,
    children: HashMap<Function, Node>,
}

/// A call tree.
#[derive(Debug)]
pub struct Tree {
    /// The nodes; a parent comes before its children.
    pub nodes: Vec<NodeData>,
    /// What is counted belongs to this region.
    pub region: Region,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { nodes: vec![NodeData::default()], region: 0 }
    }
}

impl Tree {
    fn child(&mut self, parent: Node, function: Function) -> Node {
        if let Some(node) = self.nodes[parent].children.get(&function) {
            return *node;
        }
        let node = self.nodes.len();
        self.nodes.push(NodeData { parent, function, ..NodeData::default() });
        self.nodes[parent].children.insert(function, node);
        node
    }

    fn cost(&mut self, node: Node) -> &mut Cost {
        self.nodes[node].costs.entry(self.region).or_default()
    }

    /// The regions in which anything was counted, in order.
    pub fn regions(&self) -> Vec<Region> {
        let all: BTreeSet<Region> = self.nodes.iter().flat_map(|n| n.costs.keys().copied()).collect();
        all.into_iter().collect()
    }

    /// Instructions of each node and all below it, in a region, or in all.
    pub fn inclusive(&self, region: Option<Region>) -> Vec<u64> {
        let mut sums: Vec<u64> = self.nodes.iter().map(|n| n.cost(region).insns).collect();
        for i in (1..self.nodes.len()).rev() {
            sums[self.nodes[i].parent] += sums[i];
        }
        sums
    }

    /// A node's children, the most expensive first.
    pub fn children(&self, node: Node, inclusive: &[u64]) -> Vec<Node> {
        let mut all: Vec<Node> = self.nodes[node].children.values().copied().collect();
        all.sort_by_key(|n| (std::cmp::Reverse(inclusive[*n]), self.nodes[*n].function));
        all
    }
}

#[derive(Debug)]
struct Frame {
    node: Node,
    function: Function,
    /// Where the caller goes on; `None` for what the thread began with.
    back: Option<u64>,
    /// It took the place of the frame below, and returns for it.
    tail: bool,
}

/// How a function was left for another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call; the caller goes on at this address.
    Call(u64),
    /// A return.
    Return,
    /// Any other way.
    Jump,
    /// A signal struck here.
    Signal(u64),
}

/// A thread's stack.
#[derive(Debug, Default)]
pub struct Stack {
    frames: Vec<Frame>,
}

impl Stack {
    /// The thread is at `pc` now, which belongs to `function` and is its `entry` or not.
    pub fn arrive(&mut self, tree: &mut Tree, step: Step, pc: u64, function: Function, entry: bool) {
        match step {
            Step::Call(back) | Step::Signal(back) => self.push(tree, function, Some(back), false),
            Step::Return => {
                match self.frames.iter().rposition(|f| f.back == Some(pc)) {
                    Some(mut i) => {
                        while i > 0 && self.frames[i].tail {
                            i -= 1;
                        }
                        self.frames.truncate(i);
                    }
                    None => self.jump(tree, function, entry),
                }
                if self.frames.is_empty() {
                    self.push(tree, function, None, false);
                }
            }
            Step::Jump => self.jump(tree, function, entry),
        }
    }

    fn jump(&mut self, tree: &mut Tree, function: Function, entry: bool) {
        let Some(top) = self.frames.last() else { return self.push(tree, function, None, false) };
        if top.function == function {
            return;
        }
        // A function that is being called is gone back to; its beginning is called anew.
        if !entry && let Some(i) = self.frames.iter().rposition(|f| f.function == function) {
            self.frames.truncate(i + 1);
            return;
        }
        // A tail call returns where its caller would have.
        let back = top.back;
        self.push(tree, function, back, true);
    }

    fn push(&mut self, tree: &mut Tree, function: Function, back: Option<u64>, tail: bool) {
        let parent = self.frames.last().map_or(ROOT, |f| f.node);
        let node = if self.frames.len() < DEEPEST { tree.child(parent, function) } else { parent };
        tree.cost(node).calls += 1;
        self.frames.push(Frame { node, function, back, tail });
    }

    /// Counts instructions of the function that runs.
    pub fn count(&self, tree: &mut Tree, insns: u64) {
        let node = self.frames.last().map_or(ROOT, |f| f.node);
        tree.cost(node).insns += insns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions 1, 2, … begin at 0x1000, 0x2000, …
    struct Thread {
        tree: Tree,
        stack: Stack,
    }

    impl Thread {
        fn new() -> Thread {
            let mut t = Thread { tree: Tree::default(), stack: Stack::default() };
            t.to(Step::Jump, 0x1000);
            t
        }
        fn to(&mut self, step: Step, pc: u64) {
            self.stack.arrive(&mut self.tree, step, pc, (pc >> 12) as u32, pc & 0xfff == 0);
            self.stack.count(&mut self.tree, 1);
        }
        /// Each node as `path calls insns`.
        fn text(&self) -> Vec<String> {
            let path = |mut n: Node| {
                let mut parts = Vec::new();
                while n != ROOT {
                    parts.push(self.tree.nodes[n].function.to_string());
                    n = self.tree.nodes[n].parent;
                }
                parts.reverse();
                parts.join(";")
            };
            let line = |n: Node| {
                let cost = self.tree.nodes[n].cost(None);
                format!("{} {} {}", path(n), cost.calls, cost.insns)
            };
            (1..self.tree.nodes.len()).map(line).collect()
        }
    }

    #[test]
    fn calls_and_returns() {
        let mut t = Thread::new();
        for _ in 0..3 {
            t.to(Step::Call(0x1010), 0x2000);
            t.to(Step::Call(0x2010), 0x3000);
            t.to(Step::Return, 0x2010);
            t.to(Step::Return, 0x1010);
        }
        assert_eq!(t.text(), ["1 1 4", "1;2 3 6", "1;2;3 3 3"]);
        assert_eq!(t.tree.inclusive(None), [13, 13, 9, 3]);
    }

    #[test]
    fn regions_share_the_tree_but_not_the_costs() {
        let mut t = Thread::new();
        t.to(Step::Call(0x1010), 0x2000);
        // Opened within function 2, closed after the return from 3; 4 is called in both.
        t.tree.region = 5;
        t.to(Step::Call(0x2010), 0x3000);
        t.to(Step::Return, 0x2010);
        t.to(Step::Call(0x2020), 0x4000);
        t.tree.region = 0;
        t.to(Step::Return, 0x2020);
        t.to(Step::Call(0x2030), 0x4000);
        let cost = |node: Node, region| {
            let c = t.tree.nodes[node].cost(Some(region));
            (c.calls, c.insns)
        };
        // By hand: nodes are root, 1, 2, 3, 4.
        assert_eq!([1, 2, 3, 4].map(|n| cost(n, 0)), [(1, 1), (1, 2), (0, 0), (1, 1)]);
        assert_eq!([1, 2, 3, 4].map(|n| cost(n, 5)), [(0, 0), (0, 1), (1, 1), (1, 1)]);
        assert_eq!(t.tree.regions(), [0, 5]);
        assert_eq!(t.tree.inclusive(Some(5)), [3, 3, 3, 1, 1]);
        assert_eq!(t.tree.inclusive(None), [7, 7, 6, 1, 2]);
    }

    #[test]
    fn a_tail_call_returns_for_its_caller() {
        let mut t = Thread::new();
        t.to(Step::Call(0x1010), 0x2000);
        t.to(Step::Jump, 0x3000);
        t.to(Step::Return, 0x1010);
        t.to(Step::Call(0x1020), 0x2000);
        assert_eq!(t.text(), ["1 1 2", "1;2 2 2", "1;2;3 1 1"]);
    }

    #[test]
    fn longjmp_leaves_what_is_in_between() {
        let mut t = Thread::new();
        t.to(Step::Call(0x1010), 0x2000);
        t.to(Step::Call(0x2010), 0x3000);
        t.to(Step::Call(0x3010), 0x4000);
        // Into the middle of function 1.
        t.to(Step::Jump, 0x1020);
        t.to(Step::Call(0x1030), 0x5000);
        assert_eq!(t.text(), ["1 1 2", "1;2 1 1", "1;2;3 1 1", "1;2;3;4 1 1", "1;5 1 1"]);
    }

    #[test]
    fn recursion_and_returns_over_several_frames() {
        let mut t = Thread::new();
        t.to(Step::Call(0x1010), 0x2000);
        t.to(Step::Call(0x2010), 0x2000);
        t.to(Step::Call(0x2010), 0x2000);
        t.to(Step::Return, 0x2010);
        t.to(Step::Return, 0x1010);
        assert_eq!(t.text(), ["1 1 2", "1;2 1 1", "1;2;2 1 2", "1;2;2;2 1 1"]);
    }

    #[test]
    fn a_signal_comes_back_where_it_struck() {
        let mut t = Thread::new();
        t.to(Step::Signal(0x1008), 0x9000);
        t.to(Step::Call(0x9010), 0x2000);
        t.to(Step::Return, 0x9010);
        t.to(Step::Return, 0x1008);
        assert_eq!(t.text(), ["1 1 2", "1;9 1 2", "1;9;2 1 1"]);
    }

    #[test]
    fn endless_recursion_ends_the_tree() {
        let mut t = Thread::new();
        for _ in 0..100_000 {
            t.to(Step::Call(0x1010), 0x1000);
        }
        assert!(t.tree.nodes.len() <= DEEPEST + 1);
        assert_eq!(t.tree.inclusive(None)[ROOT], 100_001);
    }
}
