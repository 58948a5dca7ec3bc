//! bellperson's parameters as ours.

use bellperson::groth16::{Parameters, VerifyingKey as BellpersonVk};
use blstrs::Bls12;
use cuzk::groth16::srs::QuotientBasis;
use cuzk::groth16::{Srs, VerifyingKey};

pub fn to_srs(params: &Parameters<Bls12>) -> Srs {
    Srs {
        vk: to_vk(&params.vk),
        basis: QuotientBasis::Coefficients,
        h: params.h.iter().map(|point| *point.as_ref()).collect(),
        l: params.l.iter().map(|point| *point.as_ref()).collect(),
        a: params.a.iter().map(|point| *point.as_ref()).collect(),
        b_g1: params.b_g1.iter().map(|point| *point.as_ref()).collect(),
        b_g2: params.b_g2.iter().map(|point| *point.as_ref()).collect(),
    }
}

pub fn to_vk(vk: &BellpersonVk<Bls12>) -> VerifyingKey {
    VerifyingKey {
        alpha_g1: vk.alpha_g1,
        beta_g1: vk.beta_g1,
        beta_g2: vk.beta_g2,
        gamma_g2: vk.gamma_g2,
        delta_g1: vk.delta_g1,
        delta_g2: vk.delta_g2,
        ic: vk.ic.clone(),
    }
}
