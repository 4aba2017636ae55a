// Sections 6 and 7: words, figures and the trace.

function facts(list, pairs) {
  for (const [name, value] of pairs) list.append(el("dt", {}, name), said("dd", value));
}

function call(place, words, text) {
  const code = said("code", text);
  place.append(el("p", {}, words), el("pre", { tabindex: "0", role: "region", "aria-label": words }, code));
}

function makeSure() {
  for (const line of data.sure.words) byId("sure-words").append(said("p", line));
  facts(byId("sure-facts"), data.sure.facts);
  if (data.sure.verify) call(byId("verify"), "Do not take our word for it: this computes the bound from the data and the dual variables alone.", data.sure.verify);
}

function makeRun() {
  facts(byId("ran-facts"), data.ran.facts);
  facts(byId("settings"), data.ran.settings);
  call(byId("repeat"), "The same again:", data.ran.command);
  const all = data.ran.stages.reduce((sum, [, seconds]) => sum + seconds, 0);
  if (all > 0) byId("trace").append(stages(all));
  if (data.ran.trace.length > 1) byId("trace").append(trace(), traceTable());
}

function stages(all) {
  const band = el("div.band", { role: "img", "aria-label": "Seconds by stage: " + data.ran.stages.map(([stage, s]) => `${stage} ${s}`).join(", ") });
  const key = el("p.key", { "aria-hidden": "true" });
  data.ran.stages.forEach(([stage, seconds], s) => {
    const part = el(`span.v${s % COLOURS}`);
    part.style.flexGrow = String(seconds / all);
    band.append(part);
    key.append(el(`i.chip.v${s % COLOURS}`), ` ${stage} ${seconds.toFixed(2)} s  `);
  });
  return el("figure", {}, el("figcaption", {}, "Where the time went"), band, key);
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, look, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(look)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function trace() {
  const steps = data.ran.trace, wide = 640, high = 170, pad = 14;
  const times = steps.map((step) => step[0]), scores = steps.map((step) => step[1]);
  const [t0, t1] = [Math.min(...times), Math.max(...times)], [y0, y1] = [Math.min(...scores), Math.max(...scores)];
  const x = (t) => pad + ((wide - 2 * pad) * (t - t0)) / (t1 - t0 || 1);
  const y = (s) => high - pad - ((high - 2 * pad) * (s - y0)) / (y1 - y0 || 1);
  const line = steps.map((step, s) => `${s ? "L" : "M"}${x(step[0]).toFixed(1)} ${y(step[1]).toFixed(1)}`).join("");
  const best = scores.indexOf(y1);
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `Fair score of whole sets over ${(t1 - t0).toFixed(2)} seconds, best ${steps[best][2]}` },
    svg("line", { x1: pad, x2: wide - pad, y1: y(y1), y2: y(y1), class: "grid" }),
    svg("path", { d: line, class: "line" }), svg("circle", { cx: x(times[best]), cy: y(y1), r: 4, class: "dot" }));
  return el("figure", {}, el("figcaption", {}, `Fair score of whole sets while the search went on, ${data.ran.axis}: best ${steps[best][2]}, lowest drawn ${steps[scores.indexOf(y0)][2]}; ${t0.toFixed(2)} s to ${t1.toFixed(2)} s`), picture);
}

function traceTable() {
  const made = el("details", {}, el("summary", {}, "The trace as a table"));
  made.addEventListener("toggle", () => {
    if (!made.open || made.children.length > 1) return;
    made.append(el("div.scroll", { tabindex: "0", role: "region", "aria-label": "Trace" }, el("table.plain", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "seconds"), el("th", { scope: "col" }, "fair score"))),
      el("tbody", {}, ...data.ran.trace.map((step) => el("tr", {}, el("td", {}, step[0].toFixed(3)), el("td", {}, step[2])))))));
  }, { passive: true });
  return made;
}
