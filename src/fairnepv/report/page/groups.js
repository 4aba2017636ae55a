// Sections 4 and 5: what a pick stands for, and what a rival has in its place.

const STRIPS = 12;

function makeStrips() {
  if (!data.stands_for) {
    byId("stand-lead").textContent = "This is not known: see the notes at the top of the page.";
    return;
  }
  const order = [...data.stands_for.keys()].sort((a, b) => data.stands_for[b] - data.stands_for[a] || a - b);
  const most = data.stands_for[order[0]], alone = data.stands_for.filter((many) => many === 1).length;
  byId("stand-lead").textContent = `Every item belongs to its nearest pick, by the mean cosine over views. The largest group has ${count(most, "item")}; ${alone ? count(alone, "pick stands for itself", "picks stand for themselves") + " alone" : "no pick stands for itself alone"}.`;
  const list = byId("strips"), more = byId("more-strips");
  let shown = 0;
  function add() {
    for (const pick of order.slice(shown, shown + STRIPS)) {
      const length = el("span.fill");
      length.style.width = `${(100 * data.stands_for[pick]) / most}%`;
      const others = data.stands_for[pick] - 1 - data.examples[pick].length;
      list.append(el("li", {}, tile(pick, "of"),
        el("div.who", {}, said("strong", textOf(pick) || calledOf(pick)),
          el("span.many", {}, `stands for ${count(data.stands_for[pick], "item")}`),
          el("span.track", { "aria-hidden": "true" }, length)),
        el("div.like", {}, ...data.examples[pick].map((item) => tile(item)), others > 0 ? el("span.rest", {}, `+${plain.format(others)}`) : null)));
    }
    shown = Math.min(order.length, shown + STRIPS);
    more.hidden = shown === order.length;
  }
  more.addEventListener("click", add);
  add();
}

function makeMissed() {
  const rivals = data.selectors.slice(1);
  if (!rivals.length) {
    byId("missed").hidden = true;
    return;
  }
  // First the one that leaves a view behind.
  const first = 1 + Math.max(0, rivals.findIndex((row) => row.behind !== null));
  rivals.forEach((row, r) => {
    byId("rivals").append(el("label", {}, el("input", {
      type: "radio", name: "rival", value: r + 1, checked: r + 1 === first, onchange: () => tell({ rival: r + 1 }),
    }), said("span", row.method)));
  });
  const draw = () => {
    const row = data.selectors[state.rival];
    byId("missed-lead").replaceChildren(said("span", row.sentence), ` Of the ${count(picked, "pick")} it shares ${plain.format(row.shared)}.`);
    byId("sides").replaceChildren(
      side("Only ours", `first what brings most to ${row.by}`, row.only_ours, row.ours_alone),
      side(`Only ${row.method}`, "in its order", row.only_theirs, row.theirs_alone));
  };
  listeners.push((change) => { if ("rival" in change) draw(); });
  tell({ rival: first });
}

function side(heading, how, items, all) {
  return el("div.side", {}, el("h3", {}, said("span", heading), el("span.many", {}, `${plain.format(all)}, ${how}`)),
    el("div.tiles", {}, ...items.map((item) => tile(item)), all > items.length ? el("span.rest", {}, `+${plain.format(all - items.length)}`) : null));
}

// The item at hand, at the foot of the window.
function makePanel() {
  const panel = byId("panel");
  function draw() {
    const item = state.chosen;
    panel.hidden = item === null;
    document.body.classList.toggle("with-panel", item !== null);
    if (item === null) return;
    const pick = pickOf(item), stands = data.stands_for;
    const facts = isPick(item) ? [`pick ${plain.format(item + 1)} of ${plain.format(picked)}`] : [`not chosen${pick === null ? "" : `; ${calledOf(pick)} stands for it`}`];
    if (groupOf(item) !== null) facts.push(groupOf(item));
    if (isPick(item) && stands) facts.push(`stands for ${count(stands[item], "item")}`);
    if (isPick(item)) for (const view of data.views) facts.push(`${view.name} ${gained(data.gains[view.name][item])}`);
    const like = isPick(item) && data.examples ? data.examples[item] : pick === null || isPick(item) ? [] : [pick];
    const step = (by) => choose((item + by + picked) % picked);
    panel.replaceChildren(...[
      data.pictures ? el("span.picture", {}, pictureOf(item)) : null,
      el("div.words", {}, said("strong", calledOf(item)), textOf(item) === null ? null : said("span.text", textOf(item)),
        said("span.facts-line", facts.join(" · "))),
      like.length ? el("div.like", { "aria-label": isPick(item) ? "Nearest items that it stands for" : "The pick that stands for it" }, ...like.map((other) => tile(other))) : null,
      el("div.moves", {},
        el("button.quiet", { type: "button", "aria-label": "Previous pick", onclick: () => step(isPick(item) ? -1 : -item) }, "←"),
        el("button.quiet", { type: "button", "aria-label": "Next pick", onclick: () => step(isPick(item) ? 1 : -item) }, "→"),
        el("button.quiet", { type: "button", "aria-label": "Close", onclick: () => choose(null) }, "×")),
    ].filter(Boolean));
    announce([calledOf(item), textOf(item), ...facts].filter(Boolean).join(", "));
  }
  listeners.push((change) => { if ("chosen" in change) draw(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.chosen !== null) {
      const back = document.querySelector(`.card[data-item="${state.chosen}"]`);
      if (panel.contains(document.activeElement) && back) back.focus();
      choose(null);
    }
  });
}
