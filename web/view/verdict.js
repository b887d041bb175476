/** What does the conversation keep of a permission request? One line under the call it was about: who answered what. */

import { optionName, outcomeTone, refusal, verdict } from "../wording.js";
import { h, present } from "./dom.js";
import { icon } from "./icons.js";

/** @typedef {import("./conversation.js").View} View */
/** @typedef {import("./conversation.js").Context} Context */

/** @type {Record<string, string>} */
const MARKS = { allowed: "check", denied: "cross", withdrawn: "clock", pending: "shield" };

/** @param {import("../types").PermissionEntry} first @param {Context} context @returns {View} */
export function verdictView(first, context) {
  const node = h("p", { class: "entry verdict", "data-request": first.requestId });
  const update = (/** @type {import("../types").Entry} */ entry) => {
    if (entry.kind !== "permission") return;
    const tone = outcomeTone(entry);
    node.dataset.tone = tone;
    const chosen = entry.outcome?.optionId ?? null;
    const who = entry.refusals.map((item) => `${context.name(item.by)} was refused (${refusal(item.reason)})`).join("; ");
    node.replaceChildren(
      ...present([
        icon(MARKS[tone] ?? "shield"),
        h("span", { class: "verdict-text" }, verdict(entry, context.name)),
        chosen !== null && h("span", { class: "verdict-option" }, optionName(entry, chosen)),
        who !== "" && h("span", { class: "verdict-refused" }, who),
      ]),
    );
  };
  update(first);
  return { node, update };
}
