//! The approval mode, between the protocol's word for it and the tools'.

use convoke_protocol::ApprovalMode;
use convoke_tools::Mode;

pub(crate) fn to_tools(mode: ApprovalMode) -> Mode {
    match mode {
        ApprovalMode::Plan => Mode::Plan,
        ApprovalMode::Default => Mode::Default,
        ApprovalMode::AutoEdit => Mode::AutoEdit,
        ApprovalMode::Yolo => Mode::Yolo,
    }
}

pub(crate) fn from_tools(mode: Mode) -> ApprovalMode {
    match mode {
        Mode::Plan => ApprovalMode::Plan,
        Mode::Default => ApprovalMode::Default,
        Mode::AutoEdit => ApprovalMode::AutoEdit,
        Mode::Yolo => ApprovalMode::Yolo,
    }
}
