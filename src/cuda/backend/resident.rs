//! The queries that stay on the device, and the shapes.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use blst::{blst_p1_affine, blst_p2_affine};

use super::sources::{QueryIndices, QueryPoints, ShapeImage, VariableIndices};
use super::{new_target, SharedBuffer};
use crate::cuda::memory::CopyTarget;
use crate::cuda::spmv::DeviceShape;
use crate::cuda::staging::{Stager, Ticket, Transfer};
use crate::cuda::{Context, CudaError, Event, Priority, Reservation, Stream};
use crate::groth16::{R1csShape, Srs};
use crate::ids::CircuitId;
use crate::policy::plan::{Query, QuerySet};

/// Points of one query on the device.
#[derive(Clone)]
pub enum Points {
    G1(SharedBuffer<blst_p1_affine>),
    G2(SharedBuffer<blst_p2_affine>),
}

impl Points {
    fn new(query: Query, num_points: usize, memory: &TargetMemory) -> Result<Self, CudaError> {
        let TargetMemory { reservation, compute } = memory;
        Ok(match query {
            Query::BG2 => Self::G2(new_target(reservation, compute, num_points)?),
            _ => Self::G1(new_target(reservation, compute, num_points)?),
        })
    }

    fn target(&self) -> Rc<dyn CopyTarget> {
        match self {
            Self::G1(points) => Rc::clone(points) as Rc<dyn CopyTarget>,
            Self::G2(points) => Rc::clone(points) as Rc<dyn CopyTarget>,
        }
    }
}

/// Points of one query, and for A and B which variable each belongs to.
#[derive(Clone)]
pub struct QueryBuffers {
    pub points: Points,
    pub indices: Option<SharedBuffer<u32>>,
}

/// Where new buffers are allocated and charged.
pub struct TargetMemory<'m> {
    pub reservation: &'m Reservation,
    pub compute: &'m Stream,
}

/// How bytes get into buffers: by which stream, after what, counted by which ticket.
pub struct Route<'r> {
    pub copies: &'r Stream,
    pub after: Rc<Event>,
    pub ticket: &'r Ticket,
    pub is_urgent: bool,
}

/// Which points of a query to copy.
pub struct QueryRange<'r> {
    pub srs: &'r Arc<Srs>,
    pub indices: &'r Arc<VariableIndices>,
    pub query: Query,
    pub start: usize,
    pub length: usize,
}

impl QueryBuffers {
    /// Room for `num_points` points.
    ///
    /// # Errors
    /// As [`crate::cuda::DeviceBuffer::new`].
    pub fn new(query: Query, num_points: usize, memory: &TargetMemory) -> Result<Self, CudaError> {
        let TargetMemory { reservation, compute } = memory;
        let points = Points::new(query, num_points, memory)?;
        let indices = match query {
            Query::H | Query::L => None,
            Query::A | Query::BG1 | Query::BG2 => Some(new_target(reservation, compute, num_points)?),
        };
        Ok(Self { points, indices })
    }

    /// Starts copying a range to the front of these buffers.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if there is no room for it.
    pub fn fill(&self, range: &QueryRange, route: &Route, stager: &mut Stager) -> Result<(), CudaError> {
        let Route { copies, after, ticket, is_urgent } = route;
        let &QueryRange { srs, indices, query, start, length } = range;
        let point_bytes = match query {
            Query::BG2 => size_of::<blst_p2_affine>(),
            _ => size_of::<blst_p1_affine>(),
        };
        let transfer = Transfer {
            source: Arc::new(QueryPoints { srs: Arc::clone(srs), query }),
            source_offset: start * point_bytes,
            target: self.points.target(),
            target_offset: 0,
            bytes: length * point_bytes,
            after: Rc::clone(after),
        };
        stager.submit(transfer, copies, ticket, *is_urgent)?;
        if let Some(buffer) = &self.indices {
            let transfer = Transfer {
                source: Arc::new(QueryIndices { indices: Arc::clone(indices), query }),
                source_offset: start * size_of::<u32>(),
                target: Rc::clone(buffer) as Rc<dyn CopyTarget>,
                target_offset: 0,
                bytes: length * size_of::<u32>(),
                after: Rc::clone(after),
            };
            stager.submit(transfer, copies, ticket, *is_urgent)?;
        }
        Ok(())
    }
}

/// Everything that is resident on one device.
pub struct Residents {
    circuits: HashMap<CircuitId, Circuit>,
    /// No limit of its own: the actor's ledger has granted what a plan says.
    reservation: Reservation,
    stream: Stream,
}

struct Circuit {
    indices: Arc<VariableIndices>,
    queries: HashMap<Query, Resident>,
    shape: Option<ResidentShape>,
}

struct ResidentShape {
    /// What was copied.
    shape: Arc<R1csShape>,
    image: DeviceShape,
    loading: Ticket,
}

struct Resident {
    buffers: QueryBuffers,
    loading: Ticket,
}

impl Residents {
    pub fn new(context: &Context) -> Result<Self, CudaError> {
        Ok(Self {
            circuits: HashMap::new(),
            reservation: Reservation::new(context, u64::MAX),
            stream: Stream::new(context, Priority::Normal)?,
        })
    }

    /// The list of variables of a circuit, shared by all its partitions.
    pub fn indices(&mut self, circuit: &CircuitId, shape: &Arc<R1csShape>) -> Arc<VariableIndices> {
        match self.circuits.get(circuit) {
            Some(known) if known.indices.are_of(shape) => Arc::clone(&known.indices),
            _ => Arc::new(VariableIndices::new(Arc::clone(shape))),
        }
    }

    /// Starts loading those of `wanted` that are not there; returns the tickets of all that are still on their way.
    ///
    /// # Errors
    /// As [`crate::cuda::DeviceBuffer::new`]; what was begun stays.
    pub fn load(
        &mut self,
        circuit: &CircuitId,
        srs: &Arc<Srs>,
        indices: &Arc<VariableIndices>,
        wanted: QuerySet,
        is_urgent: bool,
        stager: &mut Stager,
    ) -> Result<Vec<Ticket>, CudaError> {
        if wanted.is_empty() {
            return Ok(Vec::new()); // the actor would not ask for an empty entry to be evicted
        }
        let known = self.circuits.entry(circuit.clone()).or_insert_with(|| Circuit {
            indices: Arc::clone(indices),
            queries: HashMap::new(),
            shape: None,
        });
        known.indices = Arc::clone(indices);
        let mut loading = Vec::new();
        let memory = TargetMemory { reservation: &self.reservation, compute: &self.stream };
        if wanted.has_shape() {
            let resident = match known.shape.take() {
                Some(resident) => resident,
                None => load_shape(indices.shape(), &memory, is_urgent, stager)?,
            };
            loading.extend((!resident.loading.is_done()).then(|| resident.loading.clone()));
            known.shape = Some(resident);
        }
        for query in wanted.iter() {
            if let Some(resident) = known.queries.get(&query) {
                loading.extend((!resident.loading.is_done()).then(|| resident.loading.clone()));
                continue;
            }
            let length = num_points(srs, query);
            let buffers = QueryBuffers::new(query, length, &memory)?;
            let ticket = Ticket::default();
            let range = QueryRange { srs, indices, query, start: 0, length };
            let route =
                Route { copies: &self.stream, after: stager.mark(&self.stream)?, ticket: &ticket, is_urgent };
            buffers.fill(&range, &route, stager)?;
            loading.push(ticket.clone());
            known.queries.insert(query, Resident { buffers, loading: ticket });
        }
        Ok(loading)
    }

    /// The buffers of a query that is loaded.
    pub fn get(&self, circuit: &CircuitId, query: Query) -> Option<QueryBuffers> {
        let resident = self.circuits.get(circuit)?.queries.get(&query)?;
        resident.loading.is_done().then(|| resident.buffers.clone())
    }

    /// The circuit's shape, once it is loaded; `None` also if what was loaded under this name is another one.
    pub fn shape(&mut self, circuit: &CircuitId, shape: &Arc<R1csShape>) -> Option<DeviceShape> {
        let resident = self.circuits.get_mut(circuit)?.shape.as_mut()?;
        if !Arc::ptr_eq(&resident.shape, shape) {
            // The host has loaded the circuit again since: a comparison of milliseconds, once.
            if resident.shape != *shape {
                return None;
            }
            resident.shape = Arc::clone(shape);
        }
        resident.loading.is_done().then(|| resident.image.clone())
    }

    pub fn loaded(&self, circuit: &CircuitId) -> QuerySet {
        let Some(known) = self.circuits.get(circuit) else { return QuerySet::NONE };
        let has_shape = known.shape.as_ref().is_some_and(|resident| resident.loading.is_done());
        let shape = if has_shape { QuerySet::SHAPE } else { QuerySet::NONE };
        known
            .queries
            .iter()
            .filter(|(_, resident)| resident.loading.is_done())
            .fold(shape, |loaded, (query, _)| loaded.with(*query))
    }

    /// Lets a circuit's queries and shape go; what is still being copied is freed when the copy is done.
    pub fn evict(&mut self, circuit: &CircuitId, stager: &mut Stager) -> bool {
        let Some(known) = self.circuits.remove(circuit) else { return false };
        for resident in known.queries.values() {
            stager.cancel(&resident.loading);
        }
        if let Some(resident) = &known.shape {
            stager.cancel(&resident.loading);
        }
        let was_there = !known.queries.is_empty() || known.shape.is_some();
        drop(known);
        // Frees take effect in stream order, behind at most the few pieces that are under way: milliseconds. A failure
        // is reported by whoever uses the context next.
        let _ = self.stream.synchronize();
        was_there
    }

    pub fn used_bytes(&self) -> u64 {
        self.reservation.used_bytes()
    }
}

/// Starts copying a shape's image to the device.
fn load_shape(
    shape: &Arc<R1csShape>,
    memory: &TargetMemory,
    is_urgent: bool,
    stager: &mut Stager,
) -> Result<ResidentShape, CudaError> {
    let TargetMemory { reservation, compute: stream } = memory;
    let image = DeviceShape::new(reservation, stream, shape)?;
    let source = ShapeImage::new(shape);
    let (bytes, loading) = (source.num_bytes(), Ticket::default());
    let transfer = Transfer {
        source: Arc::new(source),
        source_offset: 0,
        target: Rc::clone(image.image()) as Rc<dyn CopyTarget>,
        target_offset: 0,
        bytes,
        after: stager.mark(stream)?,
    };
    stager.submit(transfer, stream, &loading, is_urgent)?;
    Ok(ResidentShape { shape: Arc::clone(shape), image, loading })
}

/// Points of a query.
pub fn num_points(srs: &Srs, query: Query) -> usize {
    match query {
        Query::H => srs.h.len(),
        Query::L => srs.l.len(),
        Query::A => srs.a.len(),
        Query::BG1 => srs.b_g1.len(),
        Query::BG2 => srs.b_g2.len(),
    }
}
