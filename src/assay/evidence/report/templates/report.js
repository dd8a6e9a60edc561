// Filters, sorting, theme and copying. Without it the page shows everything, in the order of the methods.
"use strict";
(() => {
  const root = document.documentElement;
  const remember = (value) => { try { localStorage.setItem("assay-theme", value); } catch { /* a file may not store */ } };
  const remembered = () => { try { return localStorage.getItem("assay-theme"); } catch { return null; } };
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();

  const start = () => {
    const all = (selector, within = document) => [...within.querySelectorAll(selector)];
    const one = (selector) => document.querySelector(selector);
    all("[data-script]").forEach((element) => { element.hidden = false; });

    const theme = one("#theme");
    const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const show = () => theme.setAttribute("aria-pressed", String(isDark()));
    theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; remember(root.dataset.theme); show(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
    show();

    const body = one("#claims tbody");
    const rows = all("tr", body);
    const toggles = all("[data-verdict]", one("#filters"));
    const method = one("#method"), budget = one("#budget"), words = one("#words");
    const filter = () => {
      const verdicts = toggles.filter((b) => b.getAttribute("aria-pressed") === "true").map((b) => b.dataset.verdict);
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        const fits = (!verdicts.length || verdicts.includes(row.dataset.outcome))
          && (!method.value || method.value === row.dataset.method)
          && (!budget.value || budget.value === row.dataset.budget)
          && wanted.every((word) => text.includes(word));
        row.hidden = !fits;
        count += fits;
      }
      one("#count").textContent = count === rows.length ? `${count} claims` : `${count} of ${rows.length} claims`;
      one("#none").hidden = count > 0;
      one("#clear").disabled = count === rows.length && !verdicts.length && !words.value && !method.value && !budget.value;
    };
    toggles.forEach((button) => button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      filter();
    }));
    one("#filters").addEventListener("submit", (event) => event.preventDefault());
    [method, budget].forEach((element) => element.addEventListener("change", filter));
    words.addEventListener("input", filter);
    one("#clear").addEventListener("click", () => {
      toggles.forEach((button) => button.setAttribute("aria-pressed", "false"));
      method.value = budget.value = words.value = "";
      filter();
      words.focus();
    });
    filter();

    for (const button of all("#claims th button")) {
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const down = head.getAttribute("aria-sort") === "ascending";
        all("#claims th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.dataset[button.dataset.sort];
        const compare = button.dataset.kind === "text"
          ? (a, b) => key(a).localeCompare(key(b))
          : (a, b) => Number(key(a)) - Number(key(b));
        // What has no number stays last either way.
        const empty = (row) => button.dataset.kind !== "text" && key(row) === "";
        rows.sort((a, b) => empty(a) - empty(b) || (empty(a) ? 0 : down ? -compare(a, b) : compare(a, b)));
        body.append(...rows);
      });
    }

    for (const button of all("[data-copy]")) {
      button.addEventListener("click", async () => {
        const code = document.getElementById(button.dataset.copy);
        const done = (text) => { button.textContent = text; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
        try {
          await navigator.clipboard.writeText(code.textContent);
          done("Copied");
        } catch {
          getSelection().selectAllChildren(code);
          done("Selected");
        }
      });
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
