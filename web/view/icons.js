/** Which small pictures are there? Drawn as strokes of the current colour on a 20 × 20 grid. */

/** @type {Record<string, string>} */
const PATHS = {
  terminal: "M3 4.5h14a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1v-9a1 1 0 0 1 1-1ZM5.5 8l2.5 2-2.5 2M10 12.5h4",
  pencil: "M12.5 4.5l3 3L7 16H4v-3l8.5-8.5ZM11 6l3 3",
  file: "M5 2.5h6.5L15 6v11.5H5v-15ZM11.5 2.5V6H15",
  search: "M9 3.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11ZM13 13l4 4",
  globe: "M10 2.5a7.5 7.5 0 1 1 0 15 7.5 7.5 0 0 1 0-15ZM2.5 10h15M10 2.5c2.2 2.2 3 4.8 3 7.5s-.8 5.3-3 7.5c-2.2-2.2-3-4.8-3-7.5s.8-5.3 3-7.5Z",
  trash: "M3.5 5.5h13M8 5.5v-2h4v2M5 5.5l.8 11h8.4l.8-11M8.5 8.5v5M11.5 8.5v5",
  tool: "M12.2 3.2a4.2 4.2 0 0 0-4.6 5.7l-4.7 4.7a1.6 1.6 0 0 0 0 2.3l1.2 1.2a1.6 1.6 0 0 0 2.3 0l4.7-4.7a4.2 4.2 0 0 0 5.7-4.6l-2.6 2.6-2.3-.6-.6-2.3 2.6-2.6Z",
  move: "M3 10h13M12 6l4 4-4 4",
  check: "M4 10.5l4 4 8-9",
  cross: "M5 5l10 10M15 5L5 15",
  clock: "M10 2.5a7.5 7.5 0 1 1 0 15 7.5 7.5 0 0 1 0-15ZM10 6v4.5l3 2",
  shield: "M10 2.5l6 2v5c0 3.8-2.5 6.6-6 8-3.5-1.4-6-4.2-6-8v-5l6-2Z",
  plus: "M10 4v12M4 10h12",
  menu: "M3 5.5h14M3 10h14M3 14.5h14",
  link: "M8.5 11.5a3 3 0 0 0 4.2 0l3-3a3 3 0 0 0-4.2-4.2l-1 1M11.5 8.5a3 3 0 0 0-4.2 0l-3 3a3 3 0 0 0 4.2 4.2l1-1",
  sun: "M10 6.5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7ZM10 1.8v2M10 16.2v2M1.8 10h2M16.2 10h2M4.2 4.2l1.4 1.4M14.4 14.4l1.4 1.4M4.2 15.8l1.4-1.4M14.4 5.6l1.4-1.4",
  moon: "M16.5 11.8A7 7 0 0 1 8.2 3.5a7 7 0 1 0 8.3 8.3Z",
  auto: "M10 2.5a7.5 7.5 0 1 1 0 15 7.5 7.5 0 0 1 0-15ZM10 2.5v15M10 5.5l4.2 0M10 8.5h6.6M10 11.5h6.6M10 14.5h4.2",
  down: "M10 4v12M5 11l5 5 5-5",
  up: "M10 16V4M5 9l5-5 5 5",
  stop: "M6 6h8v8H6z",
  copy: "M7 7h9v9H7zM4 13V4h9",
  chevron: "M7.5 5l5 5-5 5",
  list: "M7 5.5h10M7 10h10M7 14.5h10M3 5.5h.5M3 10h.5M3 14.5h.5",
  alert: "M10 3l7.5 13.5h-15L10 3ZM10 8v4M10 14v.4",
};

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} name @returns {SVGSVGElement} Decoration: hidden from assistive technology. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("focusable", "false");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name] ?? PATHS.tool ?? "");
  svg.append(path);
  return svg;
}

/** The picture for an ACP tool kind. @param {string} kind */
export function toolIcon(kind) {
  switch (kind) {
    case "execute":
      return icon("terminal");
    case "edit":
      return icon("pencil");
    case "read":
      return icon("file");
    case "search":
      return icon("search");
    case "fetch":
      return icon("globe");
    case "delete":
      return icon("trash");
    case "move":
      return icon("move");
    default:
      return icon("tool");
  }
}
