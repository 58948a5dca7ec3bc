//! Nothing but `tests/`: cuzk's registered proofs and C1s against Filecoin's proofs API.
