// What a narrow screen is: there the drawer is a sheet from below.

export const isNarrow = () => matchMedia("(max-width: 760px)").matches;
