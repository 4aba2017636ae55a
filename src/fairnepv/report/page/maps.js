// Section 3: a map per view on canvas, linked with each other and with everything else.

const GRID = 65535, CELLS = 96, NEAR = 14;

function makeMaps() {
  const maps = data.points.maps;
  if (!maps.length) {
    byId("maps-lead").textContent = "There are no maps: see the notes at the top of the page.";
    return;
  }
  const axes = maps.every((map) => map.shares) ? "The two leading principal components of every view, about its mean." : "By the coordinates that were given.";
  byId("maps-lead").textContent = `${axes} Grey: ${data.points.sampled ? `a sample of ${plain.format(points.count - picked)} of the ${plain.format(data.of - picked)} other items` : "all other items"}. Point at anything to see it in every map; click to keep it.`;
  byId("maps-key").append(el("i.spot.pool"), " pool ", el("i.spot.pick"), " picks ", el("i.spot.kept"), " at hand, with the items that it stands for");
  if (data.selectors.length > 1) {
    const name = said("span", ""), box = el("input", { type: "checkbox", id: "overlay", onchange: () => tell({ overlay: box.checked }) });
    byId("maps-key").append(el("label", {}, box, el("i.spot.rival", { "aria-hidden": "true" }), el("span", {}, "show picks of ", name)));
    listeners.push((change) => { if ("rival" in change) name.textContent = data.selectors[state.rival].method; });
  }
  const drawn = maps.map((map) => new PlaneMap(map));
  byId("planes").append(...drawn.map((map) => map.figure));
  listeners.push((change) => {
    if (["chosen", "over", "rival", "overlay", "shown"].some((key) => key in change)) for (const map of drawn) map.later();
  });
  const redraw = () => { for (const map of drawn) map.resize(); };
  new ResizeObserver(redraw).observe(byId("planes"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.addEventListener("theme", redraw);
}

class PlaneMap {
  constructor(map) {
    const bytes = Uint8Array.from(atob(map.xy), (letter) => letter.charCodeAt(0));
    this.xy = new Uint16Array(bytes.buffer);
    this.name = map.view || "all views";
    const explained = map.shares ? `; the axes show ${map.shares[0]} and ${map.shares[1]} of its variance` : "";
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `Map of ${this.name}${explained}. Arrow keys go from pick to pick; a table of the picks follows.` });
    this.figure = el("figure.plane", {}, el("figcaption", {}, said("strong", this.name), el("span.many", {}, map.shares ? `${map.shares[0]} and ${map.shares[1]} of variance` : "")),
      this.canvas, this.table());
    this.pool = document.createElement("canvas");
    this.canvas.addEventListener("pointermove", (event) => this.over(event));
    this.canvas.addEventListener("pointerleave", () => { hideTip(); tell({ over: null }); });
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  resize() {
    const side = this.canvas.clientWidth;
    if (!side) return;
    this.scale = Math.min(2, devicePixelRatio || 1);
    this.side = side;
    for (const canvas of [this.canvas, this.pool]) canvas.width = canvas.height = Math.round(side * this.scale);
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(["pool", "pick", "kept", "rival", "paper", "ink"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.drawPool();
    this.draw();
  }

  /** Where an item is, in pixels of the page. */
  place(item) {
    const pad = 10, room = this.side - 2 * pad;
    return [pad + (room * this.xy[2 * item]) / GRID, pad + room * (1 - this.xy[2 * item + 1] / GRID)];
  }

  drawPool() {
    const brush = this.pool.getContext("2d"), size = points.count > 20000 ? 1.3 : points.count > 4000 ? 1.8 : 2.6;
    brush.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    brush.clearRect(0, 0, this.side, this.side);
    brush.fillStyle = this.colours.pool;
    brush.globalAlpha = points.count > 20000 ? 0.45 : 0.7;
    for (let item = picked; item < points.count; item++) {
      const [x, y] = this.place(item);
      brush.fillRect(x - size / 2, y - size / 2, size, size);
    }
    brush.globalAlpha = 1;
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    if (!this.side) return;
    const brush = this.canvas.getContext("2d");
    brush.setTransform(1, 0, 0, 1, 0, 0);
    brush.clearRect(0, 0, this.canvas.width, this.canvas.height);
    brush.drawImage(this.pool, 0, 0);
    brush.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    const kept = state.chosen ?? state.over, pick = kept === null ? null : pickOf(kept);
    if (pick !== null && points.pick) {
      brush.fillStyle = this.colours.kept;
      for (let item = picked; item < points.count; item++) if (points.pick[item] === pick) this.dot(brush, item, 2.8);
    }
    if (state.overlay && state.rival) {
      brush.strokeStyle = this.colours.rival;
      brush.lineWidth = 1.4;
      for (const item of data.selectors[state.rival].picks) {
        const [x, y] = this.place(item);
        brush.strokeRect(x - 4, y - 4, 8, 8);
      }
    }
    const size = picked > 1000 ? 2.4 : 3.6;
    for (let item = 0; item < picked; item++) {
      brush.globalAlpha = state.shown && !state.shown.has(item) ? 0.18 : 1;
      brush.fillStyle = this.colours.paper;
      this.dot(brush, item, size + 1);
      brush.fillStyle = this.colours.pick;
      this.dot(brush, item, size);
    }
    brush.globalAlpha = 1;
    for (const item of new Set([state.chosen, state.over])) if (item !== null) this.ring(brush, item);
  }

  dot(brush, item, radius) {
    const [x, y] = this.place(item);
    brush.beginPath();
    brush.arc(x, y, radius, 0, 2 * Math.PI);
    brush.fill();
  }

  ring(brush, item) {
    const [x, y] = this.place(item);
    brush.fillStyle = this.colours.kept;
    this.dot(brush, item, 5.5);
    brush.strokeStyle = this.colours.ink;
    brush.lineWidth = 1.6;
    brush.beginPath();
    brush.arc(x, y, 8.5, 0, 2 * Math.PI);
    brush.stroke();
  }

  /** The item under the pointer; a pick before what is grey. */
  nearest(event) {
    const box = this.canvas.getBoundingClientRect(), at = [event.clientX - box.left, event.clientY - box.top];
    let best = null, least = NEAR * NEAR;
    const look = (item, handicap) => {
      const [x, y] = this.place(item), apart = (x - at[0]) ** 2 + (y - at[1]) ** 2 + handicap;
      if (apart < least) [best, least] = [item, apart];
    };
    for (let item = 0; item < picked; item++) look(item, 0);
    for (const item of this.around(at)) look(item, 36);
    return best;
  }

  /** Other items in the cells about a place; they are put into cells when first asked for. */
  around(at) {
    if (!this.cells) {
      this.cells = new Map();
      for (let item = picked; item < points.count; item++) {
        const cell = this.cell(this.xy[2 * item] / GRID, 1 - this.xy[2 * item + 1] / GRID, 0, 0);
        if (!this.cells.has(cell)) this.cells.set(cell, []);
        this.cells.get(cell).push(item);
      }
    }
    const room = this.side - 20, found = [], reach = Math.ceil((NEAR * CELLS) / room);
    for (let i = -reach; i <= reach; i++) for (let j = -reach; j <= reach; j++) {
      found.push(...(this.cells.get(this.cell((at[0] - 10) / room, (at[1] - 10) / room, i, j)) || []));
    }
    return found;
  }

  cell(x, y, i, j) {
    return (Math.min(CELLS - 1, Math.floor(x * CELLS)) + i) * 1000 + Math.min(CELLS - 1, Math.floor(y * CELLS)) + j;
  }

  over(event) {
    const item = this.nearest(event);
    if (item === null) hideTip();
    else showTip(item, event);
    if (item !== state.over) tell({ over: item });
  }

  click(event) {
    const item = this.nearest(event);
    choose(item === null ? null : item < described ? item : pickOf(item));
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = state.chosen === null || !isPick(state.chosen) ? (step > 0 ? -1 : picked) : state.chosen;
    choose((at + step + picked) % picked);
  }

  table() {
    const made = el("details", {}, el("summary", {}, "The picks of this map as a table"));
    made.addEventListener("toggle", () => {
      if (!made.open || made.children.length > 1) return;
      const rows = Array.from({ length: picked }, (_, item) => el("tr", {}, el("td", {}, plain.format(item + 1)), said("td", calledOf(item)),
        ...[0, 1].map((axis) => el("td", {}, (this.xy[2 * item + axis] / GRID).toFixed(3)))));
      const names = ["order", data.named_by, "x, from 0 to 1", "y, from 0 to 1"].map((name) => el("th", { scope: "col" }, name));
      made.append(el("div.scroll", { tabindex: "0", role: "region", "aria-label": `Picks in ${this.name}` },
        el("table.plain", {}, el("thead", {}, el("tr", {}, ...names)), el("tbody", {}, ...rows))));
    });
    return made;
  }
}

function showTip(item, event) {
  const tip = byId("tip"), pick = pickOf(item);
  const role = isPick(item) ? `pick ${plain.format(item + 1)}` : pick === null ? "not chosen" : `${calledOf(pick)} stands for it`;
  const picture = item < described && data.pictures && data.pictures[item] ? pictureOf(item) : null;
  tip.replaceChildren(...[picture, el("div", {}, said("strong", calledOf(item)), textOf(item) === null ? null : said("span", textOf(item)), said("span.many", role))].filter(Boolean));
  tip.hidden = false;
  const right = event.clientX + 16 + tip.offsetWidth > innerWidth, low = event.clientY + 16 + tip.offsetHeight > innerHeight;
  tip.style.left = `${Math.max(4, right ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16)}px`;
  tip.style.top = `${Math.max(4, low ? event.clientY - 16 - tip.offsetHeight : event.clientY + 16)}px`;
}
const hideTip = () => { byId("tip").hidden = true; };
