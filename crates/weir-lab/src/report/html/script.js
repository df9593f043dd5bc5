// What the pictures of a report do besides being seen: figures of marks, designs hidden and shown, other scales, a theme.
// Without it all of them are there, as they were drawn.
"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const root = document.documentElement;
  root.classList.add("scripted");

  // A theme other than the system's, kept where the browser lets a file keep something.
  const kept = {
    get() { try { return localStorage.getItem("weir-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("weir-theme", value); } catch { /* not kept */ } },
  };
  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  if (kept.get() === "light" || kept.get() === "dark") root.dataset.theme = kept.get();
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    kept.set(root.dataset.theme);
    label();
  });
  dark.addEventListener("change", label);
  label();

  // Titles of marks become one label, which follows the pointer or the keys.
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  tip.setAttribute("role", "status");
  let marked = null;
  const show = (mark) => {
    if (mark === marked) return;
    marked?.classList.remove("marked");
    marked = mark;
    const name = mark?.closest(".row")?.querySelector(".name").firstChild.textContent;
    tip.textContent = mark ? (name ? `${name}: ` : "") + mark.dataset.said : "";
    if (!mark) return;
    mark.classList.add("marked");
    const at = mark.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = at.left + at.width / 2 - own.width / 2;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - own.width - 4))}px`;
    tip.style.top = `${at.top > own.height + 12 ? at.top - own.height - 8 : at.bottom + 8}px`;
  };
  const pictures = all("svg[data-plot]");
  for (const picture of pictures) {
    for (const title of all("g title", picture)) {
      title.parentNode.dataset.said = title.textContent;
      title.remove();
    }
    picture.querySelector(":scope > title")?.remove();
    picture.setAttribute("aria-label", picture.closest("figure").querySelector("h4").textContent);
    picture.removeAttribute("aria-labelledby");
    picture.tabIndex = 0;
    picture.addEventListener("pointermove", (event) => show(nearest(picture, event)));
    picture.addEventListener("pointerleave", () => show(null));
    picture.addEventListener("blur", () => show(null));
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") show(null);
      if (!step) return;
      event.preventDefault();
      const marks = all("[data-said]", picture).filter((mark) => !mark.closest(".off"));
      const index = marks.indexOf(marked);
      show(marks[index < 0 ? (step > 0 ? 0 : marks.length - 1) : (index + step + marks.length) % marks.length] ?? null);
    });
  }
  addEventListener("scroll", () => show(null), { passive: true });
  // A mark is small: the nearest one within reach is meant.
  const nearest = (picture, event) => {
    const REACH = 14;
    let best = null;
    let least = REACH;
    for (const mark of all("[data-said]", picture)) {
      if (mark.closest(".off")) continue;
      const at = mark.getBoundingClientRect();
      const x = Math.max(at.left - event.clientX, 0, event.clientX - at.right);
      const y = Math.max(at.top - event.clientY, 0, event.clientY - at.bottom);
      // What covers much lies behind what covers little.
      const distance = Math.hypot(x, y) + Math.min(at.width, 60) / 20;
      if (distance < least) [best, least] = [mark, distance];
    }
    return best;
  };

  // Places along the axis of a picture that has a choice of scales.
  const rescale = (picture, log) => {
    const [low, high] = (picture.dataset.log === String(log) ? picture.dataset.scale : picture.dataset.other).split(",").map(Number);
    const { unit, axis } = picture.dataset;
    const from = Number(picture.dataset.from);
    const to = Number(picture.dataset.to);
    const share = (value) => (log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low));
    const at = (value) => `${from + (to - from) * Math.max(0, Math.min(1, share(Number(value))))}${unit}`;
    for (const mark of all("[data-v]", picture)) {
      const { v, w } = mark.dataset;
      if (w !== undefined) {
        mark.setAttribute(`${axis}1`, at(v));
        mark.setAttribute(`${axis}2`, at(w));
      } else {
        mark.setAttribute(mark.tagName === "circle" ? `c${axis}` : axis, at(v));
      }
    }
    for (const ticks of all(".ticks[data-log]", picture)) ticks.style.display = ticks.dataset.log === String(log) ? "" : "none";
  };
  for (const scales of all(".scales")) {
    const picture = scales.closest("figure").querySelector("svg[data-plot]");
    const buttons = [["linear", false], ["log", true]].map(([name, log]) => {
      const button = scales.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = name;
      button.setAttribute("aria-pressed", String(log === (scales.dataset.log === "true")));
      button.addEventListener("click", () => {
        show(null);
        rescale(picture, log);
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      });
      return button;
    });
  }

  // A design is hidden in all pictures of its comparison at once; rows close ranks.
  const ROW = 38;
  for (const study of all(".study, #memory")) {
    const keys = all(".legend li", study);
    const toggle = (series, off) => {
      for (const part of all(`svg[data-plot] g[data-s="${series}"]`, study)) part.classList.toggle("off", off);
      for (const key of keys) {
        if (key.dataset.s === series) key.firstChild.setAttribute("aria-pressed", String(!off));
      }
      for (const figure of all("figure.rows", study)) close(figure.querySelector("svg[data-plot]"));
    };
    const close = (picture) => {
      const rows = all("g.row", picture).filter((row) => !row.classList.contains("off"));
      rows.forEach((row, index) => row.setAttribute("transform", `translate(0,${index * ROW})`));
      const height = Math.max(rows.length, 1) * ROW;
      picture.setAttribute("height", height + 24);
      for (const line of all(".ticks line", picture)) line.setAttribute("y2", height);
      for (const text of all(".ticks text", picture)) text.setAttribute("y", height + 16);
    };
    for (const key of keys) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...key.childNodes);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => toggle(key.dataset.s, button.getAttribute("aria-pressed") === "true"));
      key.replaceChildren(button);
    }
  }

  // Tables that are wider than the page are reached by keys.
  for (const box of all(".scroll")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  // Where a link leads into something that is closed, it is opened.
  const open = () => {
    let at = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    for (; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  };
  addEventListener("hashchange", open);
  open();
  // On paper everything is open, and afterwards as it was.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });

  document.getElementById("save").addEventListener("click", () => {
    const text = document.getElementById("data").textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "result.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  root.dataset.drawn = String(Math.round(performance.now()));
})();
