"""The page of one sweep: its layout, its charts, and the callbacks between them. Must not
import reports."""
