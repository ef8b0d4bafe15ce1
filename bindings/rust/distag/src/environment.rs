//! The place that a launcher gives to this process.
use crate::error::Result;
use crate::ffi::{self, functions};

/// The place of this process in its group, as its launcher tells in the environment.
///
/// ```
/// std::env::set_var("RANK", "1"); // as a launcher does
/// std::env::set_var("WORLD_SIZE", "4");
/// let place = distag::Environment::read()?;
/// assert_eq!((place.rank, place.world_size), (1, 4));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// The place in the group; -1 in an open world, whose group gives one.
    pub rank: i32,
    /// The size of the group; -1 for an open world.
    pub world_size: i32,
    /// The place among the processes of this node.
    pub local_rank: Option<i32>,
    /// The number of processes of this node.
    pub local_size: Option<i32>,
    /// The number of this node, from 0.
    pub node: Option<i32>,
    /// The number of nodes.
    pub node_count: Option<i32>,
    /// How often the launcher has started this anew; 0 also where it does not count.
    pub restart: i32,
    /// "own", "torchrun", "slurm" or "kubernetes".
    pub launcher: String,
}

impl Environment {
    /// Reads what a worker would take that is built without rank and size. No thread may change the environment meanwhile.
    ///
    /// # Errors
    /// It lists all variables that are missing, or names the one that holds no number of its range; an older library.
    pub fn read() -> Result<Self> {
        ffi::check_library()?;
        let raw = functions::get_environment()?;
        Ok(Self {
            rank: raw.rank,
            world_size: raw.world_size,
            local_rank: Some(raw.local_rank).filter(|&rank| rank >= 0),
            local_size: Some(raw.local_size).filter(|&size| size > 0),
            node: Some(raw.node).filter(|&node| node >= 0),
            node_count: Some(raw.node_count).filter(|&count| count > 0),
            restart: raw.restart,
            launcher: ffi::text_of(&raw.launcher),
        })
    }
}
