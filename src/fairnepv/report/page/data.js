// The data of the page, and the few things that all parts share. Texts of the data reach the page by
// textContent alone.

const data = JSON.parse(document.getElementById("data").textContent);
const picked = data.chosen;
const byId = (id) => document.getElementById(id);
const plain = new Intl.NumberFormat("en-US");
const count = (number, one, many) => `${plain.format(number)} ${number === 1 ? one : many || one + "s"}`;

/** An element with a class, attributes and children; strings become text. */
function el(tag, look, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(look || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== null && value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text that comes from the data: its direction is its own. */
const said = (tag, text) => el(tag, { dir: "auto" }, text);

function numbers(packed) {
  if (!packed) return null;
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  return packed.kind === "u4" ? new Uint32Array(bytes.buffer) : new Uint16Array(bytes.buffer);
}

const points = { count: data.points.count, rows: numbers(data.points.rows), pick: numbers(data.points.pick) };
const described = data.names.length;
const isPick = (item) => item < picked;

function nameOf(item) {
  if (item < described) return data.names[item];
  const names = data.points.names;
  return names ? names[item - described] : String(points.rows[item]);
}
const calledOf = (item) => {
  const named = item < described || data.points.names;
  return data.named_by === "id" && named ? nameOf(item) : `row ${plain.format(points.rows[item])}`;
};
const textOf = (item) => (data.texts && item < described ? data.texts[item] : null);
const groupOf = (item) => (item < described && data.group[item] !== null ? data.groups[data.group[item]] : null);
const pickOf = (item) => (isPick(item) ? item : points.pick ? points.pick[item] : null);

/** A picture, or a word on why there is none; nothing where no pictures were given. */
function pictureOf(item, look) {
  if (!data.pictures) return null;
  const address = item < described ? data.pictures[item] : null;
  const text = textOf(item) || calledOf(item);
  if (address) return el("img", { src: address, alt: text, decoding: "async", draggable: "false", ...look });
  const why = data.unreadable.includes(item) ? "unreadable" : "no picture";
  return el("span.none", {}, why);
}

/** What a pick added to a view: points of a share, or nats. */
const gained = (gain) => (data.percent ? `${(100 * gain).toFixed(2)} points` : `${gain.toFixed(3)} nats`);

// What is looked at: whoever shows it listens.
const listeners = [];
const state = { chosen: null, over: null, rival: 0, overlay: false, shown: null };
function tell(change) {
  Object.assign(state, change);
  for (const listen of listeners) listen(change);
}
const choose = (item) => tell({ chosen: item });
const announce = (text) => { byId("live").textContent = text; };

/** A button that stands for an item anywhere on the page. */
function tile(item, kind) {
  const picture = pictureOf(item, { alt: "" });
  const text = textOf(item);
  const made = el(`button.tile${kind ? "." + kind : ""}`, {
    type: "button", "data-item": item, title: text ? `${calledOf(item)}: ${text}` : calledOf(item),
    "aria-label": text ? `${calledOf(item)}, ${text}` : calledOf(item),
    onclick: () => choose(item), onpointerenter: () => tell({ over: item }), onpointerleave: () => tell({ over: null }),
  }, picture || said("span.word", text || nameOf(item)));
  return made;
}
