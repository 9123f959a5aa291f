from dodona.local.client import Client as Client
from dodona.local.client import invitation as invitation
from dodona.local.collector import Collector as Collector
from dodona.local.scheme import Scheme as Scheme
from dodona.local.scheme import scheme_for as scheme_for
