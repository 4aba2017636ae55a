// Head, navigation, theme; then the sections in their order.

function makeHead() {
  document.title = `${data.title} · fairnepv`;
  byId("title").textContent = data.title;
  byId("purpose").append(el("span.tag", {}, data.objective), ` ${data.purpose}`, data.title.startsWith(plain.format(data.chosen)) ? "" : ` ${plain.format(data.chosen)} of ${count(data.of, "item")}.`);
  for (const one of data.lead) byId("lead").append(el("div", {}, el("dt", {}, said("span", one.what), said("span.many", one.more)), el("dd", {}, one.figure)));
  const notes = [...data.notes];
  if (data.pictures_left_out) notes.push(`${count(data.pictures_left_out, "picture is", "pictures are")} left out, so that the page stays small`);
  if (data.unreadable.length) notes.push(`${count(data.unreadable.length, "picture")} could not be read`);
  for (const note of notes) byId("notes").append(said("li", `${note}.`));
  byId("notes").hidden = !notes.length;
}

function makeNav() {
  const sections = [...document.querySelectorAll("main > section:not([hidden])")];
  const links = sections.map((section) => el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent));
  byId("nav").append(...links);
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const link = links[sections.indexOf(entry.target)];
      if (entry.isIntersecting) {
        for (const other of links) other.removeAttribute("aria-current");
        link.setAttribute("aria-current", "true");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const section of sections) seen.observe(section);
}

function makeTheme() {
  const button = byId("theme"), root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const say = () => { button.textContent = now() === "dark" ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    say();
    document.dispatchEvent(new Event("theme"));
  });
  dark.addEventListener("change", say);
  say();
}

makeHead();
makeTheme();
makeGallery();
makeBars();
makeMaps();
makeStrips();
makePanel();
makeMissed();
makeSure();
makeRun();
makeNav();
document.documentElement.dataset.ready = "true";
