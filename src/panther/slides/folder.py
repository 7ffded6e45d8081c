"""What the files of one slide of a job hold."""

from functools import cached_property

from panther.slides.contours import Contours, read_contours
from panther.slides.listing import SlideRef
from panther.storage.names import Job
from panther.storage.trident import Coords, read_coords


class SlideFiles:
    """One slide of a job and what its files hold, each read once; a step that writes one puts it here, too."""

    def __init__(self, slide: SlideRef, job: Job) -> None:
        self.slide, self.job = slide, job
        self._coords: dict[str, Coords] = {}

    @cached_property
    def contours(self) -> Contours | None:
        """Contours: of `SLIDE.geojson`, or, before it, of one named after the whole file name, `SLIDE.svs.geojson`."""
        own = self.job.geojson(self.slide.name)
        found = (path for path in (own.with_name(f"{self.slide.path.name}.geojson"), own) if path.exists())
        return next(map(read_contours, found), None)

    def coords(self, patches: str) -> Coords | None:
        """Coordinates of a set of patches, None where there are none."""
        path = self.job.coords(self.slide.name, patches)
        if patches not in self._coords and path.exists():
            self._coords[patches] = read_coords(path)
        return self._coords.get(patches)

    def forget_coords(self, patches: str) -> None:
        """Read them again when they are asked for: they were written anew."""
        self._coords.pop(patches, None)
