// The filter of the requirements. Everything on the page is there without it.
(() => {
  const form = document.getElementById("filter");
  const rows = [...document.querySelectorAll("tr[data-outcome]")];
  const apply = () => {
    const outcome = form.elements.outcome.value;
    const text = form.elements.text.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = (outcome && row.dataset.outcome !== outcome) || !row.textContent.toLowerCase().includes(text);
      shown += !row.hidden;
    }
    for (const group of document.querySelectorAll(".group")) {
      group.hidden = !group.querySelector("tr[data-outcome]:not([hidden])");
    }
    form.querySelector("output").value = shown === rows.length ? "" : `${shown} of ${rows.length} shown`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  // A link to a requirement that the filter hides would lead nowhere.
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.closest("[hidden]")) {
      form.reset();
      apply();
      target.scrollIntoView();
    }
  });
  form.hidden = rows.length === 0;
})();
